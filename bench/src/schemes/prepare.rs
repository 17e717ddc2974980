//! Makes the input files of programs before they are measured.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::workload::{Kind, Workload};

/// The Python program of the workload `numpy`.
const MODEL: &str = include_str!("model.py");

/// The Python program of the workload `numpy-file`.
const MAPPED: &str = include_str!("mapped.py");

/// One in this many rows of a database is queried.
const QUERIED: u64 = 20;

/// Makes the files of `workload` in the directory `place`, for `length` times the work.
pub(crate) fn prepare(workload: &Workload, place: &Path, length: f64) -> Result<()> {
    let file = |name: &str, text: String| {
        fs::write(place.join(name), text).with_context(|| format!("{name} cannot be written to {}", place.display()))
    };
    match workload.kind {
        Kind::Pattern { .. } | Kind::Redis { .. } => Ok(()),
        Kind::Sqlite { rows, queries } => {
            file(&queries_of(workload), rows_of_text(rows) + &query_sql(rows, times(queries, length)))
        }
        Kind::Numpy { .. } => file("model.py", MODEL.into()),
        Kind::Compiler { functions } => file("functions.i", source(times(functions, length))),
        Kind::File { bytes, .. } => {
            file("mapped.py", MAPPED.into())?;
            let mut file = fs::File::create(place.join("mapped"))?;
            let block: Vec<u8> = (0..1_u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            for _ in 0..bytes >> 20 {
                file.write_all(&block)?;
            }
            // Dirty pages cannot be dropped from memory.
            Ok(file.sync_all()?)
        }
        Kind::SqliteFile { rows, queries } => {
            let database = place.join("database");
            let _ = fs::remove_file(&database);
            file("fill.sql", format!("PRAGMA synchronous = off;\n{}", rows_of_text(rows)))?;
            let status = Command::new("sqlite3")
                .arg(&database)
                .stdin(Stdio::from(fs::File::open(place.join("fill.sql"))?))
                .stdout(Stdio::null())
                .status()
                .context("sqlite3 cannot be started")?;
            ensure!(status.success(), "sqlite3 failed");
            fs::File::open(&database)?.sync_all()?;
            let mapped = "PRAGMA mmap_size = 2000000000;\nSELECT sum(length(body)) FROM item;\n";
            file(&queries_of(workload), format!("{mapped}{}", query_sql(rows, times(queries, length))))
        }
    }
}

/// The file with the queries of a workload.
pub(crate) fn queries_of(workload: &Workload) -> String {
    format!("{}.sql", workload.name)
}

/// `many` times `length`.
pub(crate) fn times(many: u64, length: f64) -> u64 {
    (many as f64 * length) as u64
}

/// SQL that makes rows of about 1,100 bytes, which compress as well as text does.
fn rows_of_text(rows: u64) -> String {
    format!(
        "PRAGMA journal_mode = off;\n\
         CREATE TABLE item(id INTEGER PRIMARY KEY, name TEXT, body TEXT);\n\
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})\n\
         INSERT INTO item SELECT i, 'item ' || i, hex(randomblob(300)) || printf('%.*c', 400 + i % 200, 'x') FROM n;\n"
    )
}

/// SQL that queries one in [`QUERIED`] rows, `queries` times.
fn query_sql(rows: u64, queries: u64) -> String {
    let some = rows / QUERIED;
    format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {queries})\n\
         SELECT sum(length(body)) FROM n JOIN item ON item.id = 1 + (i * 7919) % {some};\n"
    )
}

/// A preprocessed C program with this many functions.
fn source(functions: u64) -> String {
    let mut text = String::new();
    for i in 0..functions {
        let (fields, places) = (i % 7 + 1, i % 13 + 3);
        let last = match i.checked_sub(1) {
            Some(before) => format!("f{before}((struct s{before} *)p, n - 1)"),
            None => "n".into(),
        };
        let _ = write!(
            text,
            "struct s{i} {{ int a, b; double c[{fields}]; }};\n\
             static int t{i}[{places}];\n\
             int f{i}(struct s{i} *p, int n) {{\n\
             int sum = 0;\n\
             for (int i = 0; i < n; i++) {{\n\
             switch ((i + p->a) % 5) {{\n\
             case 0: sum += t{i}[i % {places}] * {i}; break;\n\
             case 1: p->c[i % {fields}] += sum / 3.0; break;\n\
             case 2: sum ^= p->b << (i & 7); break;\n\
             default: t{i}[(i * 7) % {places}] = sum - n;\n\
             }}\n}}\n\
             return {last} + sum;\n}}\n"
        );
    }
    text
}
