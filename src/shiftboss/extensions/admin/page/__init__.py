"""The dashboard: templates over the read model. All changes go through `operations`.

`site` defines what a page is, `routes` serves the pages, and `watching` keeps open pages up to date.
"""
