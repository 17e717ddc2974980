//! The report as CSV.

use std::io::Write;

use super::Report;
use crate::{EvalError, Paper};

pub(super) fn write(report: &Report, out: &mut dyn Write) -> Result<(), EvalError> {
    let mut writer = csv::Writer::from_writer(out);
    let mut header: Vec<String> =
        ["table", "workload", "configuration", "count", "mean", "stdev", "min", "max", "change_percent", "low", "high"]
            .map(str::to_owned)
            .to_vec();
    header.extend(Paper::ALL.map(|paper| format!("{}_percent", paper.name())));
    header.push("missing".into());
    let failed = |error: csv::Error| match error.into_kind() {
        // Its kind tells a pipe without a reader.
        csv::ErrorKind::Io(error) => EvalError::Write(error),
        kind => EvalError::Write(std::io::Error::other(format!("{kind:?}"))),
    };
    writer.write_record(&header).map_err(failed)?;
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    for table in &report.tables {
        let (unit, _) = table.metric.unit();
        let name = format!(
            "{}_{}",
            table.metric.title().to_lowercase().replace(' ', "_"),
            if unit == "s" { "s" } else { "bytes" }
        );
        for row in &table.rows {
            if let Some(reason) = &row.reason {
                let mut record = vec![name.clone(), row.name.clone()];
                record.resize(header.len() - 1, String::new());
                record.push(reason.clone());
                writer.write_record(&record).map_err(failed)?;
            }
            for cell in &row.cells {
                let interval = cell.change.and_then(|change| change.interval);
                let mut record = vec![
                    name.clone(),
                    row.name.clone(),
                    cell.configuration.name().into(),
                    cell.count.to_string(),
                    number(cell.mean),
                    number(cell.deviation),
                    number(cell.range.map(|[least, _]| least)),
                    number(cell.range.map(|[_, most]| most)),
                    number(cell.change.map(|change| change.percent)),
                    number(interval.map(|[low, _]| low)),
                    number(interval.map(|[_, high]| high)),
                ];
                record.extend(Paper::ALL.map(|paper| number(cell.papers.get(&paper).copied())));
                record.push(String::new());
                writer.write_record(&record).map_err(failed)?;
            }
        }
    }
    writer.flush().map_err(EvalError::Write)
}
