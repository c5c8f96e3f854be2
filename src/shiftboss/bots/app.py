"""Workers that run bots and nothing else: `shiftboss worker shiftboss.bots.app:handlers`."""

from shiftboss.bots.handlers import bot_handlers

handlers = bot_handlers()
