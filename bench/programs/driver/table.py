"""Tables in Markdown."""

MIB = 1 << 20


def table(header, rows):
    """A table. The first column and `notes` are left-aligned, the others right-aligned."""
    rows = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    left = [i == 0 or name == "notes" for i, name in enumerate(header)]

    def line(row):
        cells = [cell.ljust(width) if of else cell.rjust(width) for cell, width, of in zip(row, widths, left)]
        return "| " + " | ".join(cells) + " |"

    rule = "|" + "|".join("-" * (width + 1) + ("-" if of else ":") for width, of in zip(widths, left)) + "|"
    return "\n".join([line(rows[0]), rule, *map(line, rows[1:])])


def mib(bytes_):
    """Bytes in MiB, with three digits that mean something."""
    if bytes_ is None:
        return "-"
    value = bytes_ / MIB
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def number(value, digits=2):
    """A number, or a dash."""
    return "-" if value is None else f"{value:.{digits}f}"
