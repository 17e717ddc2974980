//! `isotherm schema`: the JSON Schemas.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use isotherm_output::standard_output;

use crate::cli::Schema;

pub fn run(options: &Schema) -> Result<ExitCode> {
    let text = match isotherm_report::schema::named(&options.name) {
        Some(schema) => serde_json::to_string_pretty(&schema)? + "\n",
        None if options.name == "daemon" => serde_json::to_string_pretty(&isotherm_agent::config::schema())? + "\n",
        // The command line lets no other name pass.
        None => isotherm_scheme::JSON_SCHEMA.to_owned(),
    };
    standard_output().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
