//! The memory temperature of many hosts as one table.
//!
//! [`write()`] makes rows by the minute of the recordings of a host, and puts them into a [`Dataset`]: Parquet files
//! that engines for SQL read. [`VIEWS`] are questions in SQL. [`generate()`] makes a fleet whose answers are known.
//! `docs/fleet.md` has the columns.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod classes;
mod dataset;
mod error;
mod file;
mod generate;
mod minutes;
#[cfg(feature = "object-store")]
mod objects;
#[cfg(feature = "query")]
mod query;
mod row;
mod rows;
mod store;
mod views;
mod write;

pub use dataset::{Checked, Compacted, Dataset, date_of};
pub use error::{FileProblem, FleetError};
pub use generate::{Fleet, Truth, generate};
#[cfg(feature = "query")]
pub use query::{Answer, Days, Engine, RowFormat};
pub use row::{Row, VERSION, column_table, kind, schema};
pub use rows::{Names, NamesOf};
pub use views::{VIEWS, View, view};
pub use write::{Source, Written, write};
