"""The objects that all pages of one service share."""

from __future__ import annotations

from shiftboss.extensions.admin.backend import Backend
from shiftboss.extensions.admin.page.channels import Channels
from shiftboss.extensions.admin.page.render import Renderer
from shiftboss.extensions.admin.page.site import Site


class Shell:
    def __init__(self, admin: Backend, site: Site) -> None:
        self.admin, self.site = admin, site
        self.renderer = Renderer(site)
        self.channels = Channels(admin.hub)
