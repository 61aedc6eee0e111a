"""fundoscope data …"""

from fundoscope.cli.command import Commands


def add_commands(commands: Commands) -> None:
    pass
