//! The views: questions in SQL. One text is for all engines; tests ask DuckDB and DataFusion.

use crate::error::FleetError;

/// A question about the table `fleet`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Its name, which is that of its file in `views` without `.sql`.
    pub name: &'static str,
    /// The query, whose first lines say what it answers.
    pub sql: &'static str,
}

macro_rules! views {
    ($($name:literal),+ $(,)?) => {
        /// All views.
        pub const VIEWS: [View; [$($name),+].len()] =
            [$(View { name: $name, sql: include_str!(concat!("../views/", $name, ".sql")) }),+];
    };
}

views!("cost", "fast_memory", "grown", "idle", "limits", "packing", "schemes");

impl View {
    /// What it answers: the comment at its beginning, in one line.
    pub fn about(&self) -> String {
        let lines = self.sql.lines().map_while(|line| line.strip_prefix("-- "));
        lines.collect::<Vec<_>>().join(" ")
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
