"""Vectorizers: keep the embeddings of tables up to date. Each stage of the pipeline is one file."""

from shiftboss.extension import Command, Extension

extension = Extension(
    name="vectorizer",
    package=__name__,
    extra="ai",
    after=("ai",),
    settings={"vectorizer": f"{__name__}.settings:VectorizerSettings"},
    families={"vectorizers": f"{__name__}.store:Vectorizers"},
    handlers=(f"{__name__}.handlers:handlers",),
    commands={"vectorizer": Command(f"{__name__}.cli:app", "keep embeddings of tables up to date", "ai")},
    pages=(f"{__name__}.page:PAGES",),
    routes=(f"{__name__}.api:router",),
    rules=(f"{__name__}.rules:RULES",),
    findings=(f"{__name__}.rules:pgvector",),
    metrics=(f"{__name__}.metrics:vectorizers",),
    companions=(f"{__name__}.feeder:companion",),
)
