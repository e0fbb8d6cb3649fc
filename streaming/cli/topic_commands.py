"""`fresco topics tail`: what the stages of a pipeline say to each other, for people (DESIGN 10)."""

from __future__ import annotations

import json
import time
from typing import Annotated

import typer
from rich.text import Text

from streaming.cli.reporting import ConfigOption, JsonOption, out, reported
from streaming.plain import plain

app = typer.Typer(no_args_is_help=True, help="The topics between the stages.")
KINDS = ("updates", "rel", "actions")


@app.callback()
def topics() -> None:
    """The topics between the stages."""


@app.command()
def tail(
    config: ConfigOption,
    topic: Annotated[
        str | None,
        typer.Argument(help="updates, rel or actions, or a topic's whole name; all without"),
    ] = None,
    group: Annotated[str | None, typer.Option(help="a merge group; all without")] = None,
    last: Annotated[int, typer.Option("--last", "-n", help="messages of each topic")] = 10,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="go on with what comes")] = False,
    rows: Annotated[int, typer.Option(help="rows shown of each message")] = 0,
    as_json: JsonOption = False,
) -> None:
    """The newest messages of the pipeline's topics, each in words."""
    from streaming.cli.topic_lines import tail as read
    from streaming.configuration.pipeline_config import load_config
    from streaming.readers import Warehouse
    from streaming.runtime.kafka import Topics

    with reported(as_json):
        settings = load_config(config)
        names = Topics(settings.pipeline)
        chosen = [topic] if topic is not None and topic not in KINDS else []
        if not chosen:
            groups = [group] if group is not None else Warehouse(settings.warehouse).groups()
            kinds = KINDS if topic is None else (topic,)
            chosen = [getattr(names, kind)(one) for one in groups for kind in kinds]
        try:
            for told in read(settings, chosen, last, follow=follow, rows=rows):
                if as_json:
                    print(json.dumps(told.as_dict()))
                    continue
                at = time.strftime("%H:%M:%S", time.localtime(told.at_ms / 1000))
                head = f"{told.topic} {told.offset} {at} {told.producer} #{told.sequence}"
                out.print(
                    Text.assemble((plain(head), "dim"), plain(f" {told.kind} {told.says}")),
                    soft_wrap=True,
                )
                for row in told.rows:
                    out.print(Text(plain(f"    {row}")), soft_wrap=True)
        except KeyboardInterrupt:
            raise typer.Exit(0) from None
