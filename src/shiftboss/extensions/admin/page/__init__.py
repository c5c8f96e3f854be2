"""The pages: templates over the read model. Everything that changes something goes through Commands.

`site` says what a page is, `routes` answers for all of them, `watching` keeps open ones up to date.
"""
