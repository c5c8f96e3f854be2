"""The dashboard: NiceGUI pages over the read model. Everything that changes something goes through Commands.

A page is HTML made by pure functions from one shared reading; `Live` keeps it up to date in the browser.
"""
