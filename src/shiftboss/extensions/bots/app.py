"""Workers that run bots and nothing else: `shiftboss worker shiftboss.extensions.bots.app:handlers`."""

from shiftboss.extensions.bots.handlers import bot_handlers

handlers = bot_handlers()
