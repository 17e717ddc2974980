//! The pictures of the views: bars, whose parts are made of the columns.

use isotherm_core::units;
use isotherm_report::colour::{Rgb, SWAPPED, UNKNOWN, of_rate};
use isotherm_report::sheet::{Bar, Bars};

use super::Answer;
use crate::error::FleetError;

/// A bar for each of so many rows.
const MOST: usize = 20;

/// A figure of a row, made of its columns. `None` if a column is null.
type Figure = fn(&dyn Fn(&str) -> Option<i64>) -> Option<i64>;

/// The bars of a view.
struct Picture {
    view: &'static str,
    about: &'static str,
    /// The columns whose texts name a bar.
    names: &'static [&'static str],
    parts: &'static [(&'static str, Paint, Figure)],
    mark: Option<(&'static str, Figure)>,
    /// The column whose text is after the bar.
    figure: &'static str,
}

/// What a part of a bar is, which tells its colour.
#[derive(Clone, Copy)]
enum Paint {
    Hot,
    Warm,
    Mild,
    Cold,
    Unknown,
    Away,
}

impl Paint {
    fn colour(self) -> Rgb {
        match self {
            Self::Hot => of_rate(0.9),
            Self::Warm => of_rate(0.65),
            Self::Mild => of_rate(0.4),
            Self::Cold => of_rate(0.08),
            Self::Unknown => UNKNOWN,
            Self::Away => SWAPPED,
        }
    }
}

const PICTURES: [Picture; 7] = [
    Picture {
        view: "cost",
        about: "CPU time of isotherm by host",
        names: &["host_name", "host"],
        parts: &[("CPU time", Paint::Hot, |of| of("cpu_ns"))],
        mark: None,
        figure: "cpu_ns",
    },
    Picture {
        view: "fast_memory",
        about: "Memory by service, and the part that serves 90, 99 and 99.9 % of the accesses",
        names: &["service"],
        parts: &[
            ("for 90 %", Paint::Hot, |of| of("bytes_for_90")),
            ("for 99 %", Paint::Warm, |of| Some(of("bytes_for_99")? - of("bytes_for_90")?)),
            ("for 99.9 %", Paint::Mild, |of| Some(of("bytes_for_99_9")? - of("bytes_for_99")?)),
            ("the rest", Paint::Cold, |of| Some(of("known_bytes")? - of("bytes_for_99_9")?)),
            ("unknown", Paint::Unknown, |of| of("unknown_bytes")),
        ],
        mark: None,
        figure: "bytes_for_99",
    },
    Picture {
        view: "grown",
        about: "Mean memory by service, and what it has grown or shrunk by since the week before",
        names: &["service"],
        parts: &[
            ("in both weeks", Paint::Cold, |of| Some(of("mean_now_bytes")?.min(of("mean_before_bytes")?))),
            ("grown", Paint::Hot, |of| of("grown_bytes")),
            ("shrunk", Paint::Away, |of| Some(-of("grown_bytes")?)),
        ],
        mark: None,
        figure: "grown_bytes",
    },
    Picture {
        view: "idle",
        about: "Mean memory by service, and how much of it is idle",
        names: &["service"],
        parts: &[
            ("in use", Paint::Hot, |of| {
                Some(of("mean_present_bytes")? - of("mean_idle_bytes")? - of("unknown_byte_minutes")? / of("minutes")?)
            }),
            ("idle", Paint::Cold, |of| of("mean_idle_bytes")),
            ("unknown", Paint::Unknown, |of| Some(of("unknown_byte_minutes")? / of("minutes")?)),
        ],
        mark: None,
        figure: "mean_idle_bytes",
    },
    Picture {
        view: "limits",
        about: "Highest memory by service and host, and how much of it was in use",
        names: &["service", "host_name"],
        parts: &[
            ("in use", Paint::Hot, |of| of("peak_used_bytes")),
            ("more in memory", Paint::Cold, |of| of("unused_bytes")),
        ],
        mark: Some(("limit that could be", |of| of("could_be_bytes"))),
        figure: "could_be_bytes",
    },
    Picture {
        view: "packing",
        about: "Memory by host, and how much of it was in use",
        names: &["host_name", "host"],
        parts: &[("in use", Paint::Hot, |of| of("peak_used_bytes")), ("spare", Paint::Cold, |of| of("spare_bytes"))],
        mark: None,
        figure: "spare_bytes",
    },
    Picture {
        view: "schemes",
        about: "What schemes freed by service, and what came back",
        names: &["service"],
        parts: &[
            ("came back", Paint::Hot, |of| of("returned_bytes")),
            ("stayed away", Paint::Away, |of| Some(of("watched_bytes")? - of("returned_bytes")?)),
            ("not watched", Paint::Unknown, |of| Some(of("freed_bytes")? - of("watched_bytes")?)),
        ],
        mark: None,
        figure: "freed_bytes",
    },
];

/// The bars of an answer of a view. `None` if no row has something to draw.
pub(super) fn bars(view: &str, answer: &Answer) -> Result<Option<Bars>, FleetError> {
    let Some(picture) = PICTURES.iter().find(|picture| picture.view == view) else { return Ok(None) };
    let table = answer.table()?;
    let columns: Vec<(&str, Vec<Option<i64>>)> =
        table.columns.iter().map(|column| (&*column.name, answer.ints(&column.name))).collect();
    let text = |row: &[String], name: &str| -> String {
        let nth = table.columns.iter().position(|column| column.name == name);
        nth.and_then(|nth| row.get(nth)).cloned().unwrap_or_default()
    };
    let mut bars = Vec::new();
    for (nth, row) in table.rows.iter().enumerate().take(MOST) {
        let of = |name: &str| columns.iter().find(|(column, _)| *column == name).and_then(|(_, ints)| ints[nth]);
        // What shared memory subtracts is below zero, and has no length.
        let length = |figure: Figure| figure(&of).map_or(0, |figure| figure.max(0).unsigned_abs());
        let lengths: Vec<u64> = picture.parts.iter().map(|(.., figure)| length(*figure)).collect();
        if lengths.iter().all(|length| *length == 0) {
            continue;
        }
        let names: Vec<String> = picture.names.iter().map(|name| text(row, name)).collect();
        let unit = if picture.figure.ends_with("_ns") { units::nanoseconds } else { units::bytes };
        bars.push(Bar {
            name: names.join(" · "),
            shown: lengths.iter().map(|length| unit(*length)).collect(),
            lengths,
            figure: text(row, picture.figure),
            mark: picture.mark.map(|(_, figure)| length(figure)),
        });
    }
    let parts = picture.parts.iter().map(|(name, paint, _)| (*name, paint.colour())).collect();
    let mark = picture.mark.map(|(name, _)| name);
    Ok((!bars.is_empty()).then(|| Bars { about: picture.about.into(), parts, mark, bars }))
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_view_has_a_picture() {
        let pictures = super::PICTURES.map(|picture| picture.view);
        assert_eq!(crate::VIEWS.map(|view| view.name), pictures);
    }
}
