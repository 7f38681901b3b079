"""An export process: `python -m foreshore.storage.export.main --listen unix:PATH --lifeline`."""

import click

from foreshore.storage.export.messages import Command
from foreshore.storage.export.worker import Worker
from foreshore.storage.external.process import run


@click.command()
@click.option("--listen", "address", required=True, help="unix:PATH.")
@click.option("--lifeline", is_flag=True, required=True, help="End when standard input does.")
def main(address: str, lifeline: bool) -> None:
    """Run the sinks of a cluster."""
    run(address, Worker, Command, "export")


if __name__ == "__main__":
    main()
