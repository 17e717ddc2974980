//! The views: questions in SQL. One text is for all engines; tests ask DuckDB and DataFusion.

use crate::error::FleetError;

/// A question about the table `fleet`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Its name, which is that of its file in `views` without `.sql`.
    pub name: &'static str,
    /// The query, whose first lines say what it answers.
    pub sql: &'static str,
    /// Whether each row of the answer is about one host, and is made of more groups than an engine holds well for all
    /// hosts at once. The answer is that of some hosts after the other then, in the order of its last line.
    pub by_host: bool,
}

macro_rules! views {
    ($($name:literal: $by_host:literal),+ $(,)?) => {
        /// All views.
        pub const VIEWS: [View; [$($name),+].len()] =
            [$(View { name: $name, sql: include_str!(concat!("../views/", $name, ".sql")), by_host: $by_host }),+];
    };
}

views! {
    "cost": false,
    "fast_memory": false,
    "grown": false,
    "idle": false,
    // A group for each minute of each service and host.
    "limits": true,
    "packing": false,
    "schemes": false,
}

impl View {
    /// What it answers: the comment at its beginning, in one line.
    pub fn about(&self) -> String {
        let lines = self.sql.lines().map_while(|line| line.strip_prefix("-- "));
        lines.collect::<Vec<_>>().join(" ")
    }

    /// The order of its rows: what its last line has after `ORDER BY`.
    pub fn order(&self) -> &'static str {
        self.sql.trim_end().rsplit_once("\nORDER BY ").map_or("", |(_, order)| order)
    }
}

/// The view of this name.
///
/// # Errors
/// If no view has this name.
pub fn view(name: &str) -> Result<&'static View, FleetError> {
    VIEWS.iter().find(|view| view.name == name).ok_or_else(|| FleetError::NoView {
        name: isotherm_core::sanitise(name).into_owned(),
        known: VIEWS.map(|view| view.name).join(", "),
    })
}
