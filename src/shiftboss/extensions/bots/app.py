"""Handlers for workers that run only bots: `shiftboss worker shiftboss.extensions.bots.app:handlers`."""

from shiftboss.extensions.bots.handlers import bot_handlers

handlers = bot_handlers()
