//! Questions to a dataset in SQL, answered by DataFusion.

mod answer;
mod pictures;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;

use chrono::NaiveDate;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::datasource::MemTable;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::error::DataFusionError;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{DataFrame, SessionConfig, SessionContext};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use futures_util::{StreamExt as _, TryStreamExt as _};
use isotherm_core::units;
use isotherm_report::sheet::{self, Sheet};
use tokio::runtime::Runtime;

use crate::dataset::{Dataset, folder};
use crate::error::FleetError;
use crate::row::schema;
use crate::views::{VIEWS, View};

use answer::RowWriter;

pub use answer::{Answer, RowFormat};

/// How many bytes a query may take. What needs more is put into temporary files.
const MEMORY: usize = 2 << 30;

/// How many bytes temporary files may have.
const TEMPORARY: u64 = 8 << 30;

/// How many rows an answer that is held as a whole may have.
const MOST_ROWS: usize = 100_000;

/// How much of the end of a file is read to find out what it has. The default of DataFusion, 512 KiB, is a third of the
/// file of a host and day; an end that is longer is read in two steps.
const END: usize = 32 << 10;

/// A query about one host takes so many rows at a time. What it holds is small, and it has fewer steps than with the
/// default of 8192.
const HOST_BATCH: usize = 32 << 10;

/// The days of which a dataset is asked, such as `2026-11-29`, with the first and the last one. The default is all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Days {
    from: Option<String>,
    to: Option<String>,
}

impl Days {
    /// From a day to a day, in UTC.
    ///
    /// # Errors
    /// If one is no day, or the last one is before the first one.
    pub fn new(from: Option<&str>, to: Option<&str>) -> Result<Self, FleetError> {
        let parsed = |day: &str| day.parse::<NaiveDate>().map(|day| day.to_string());
        let parsed =
            |day: &str| parsed(day).map_err(|_| FleetError::NoDay { text: isotherm_core::sanitise(day).into_owned() });
        let days = Self { from: from.map(parsed).transpose()?, to: to.map(parsed).transpose()? };
        match (&days.from, &days.to) {
            (Some(from), Some(to)) if to < from => Err(FleetError::DaysReversed { from: from.clone(), to: to.clone() }),
            _ => Ok(days),
        }
    }

    fn has(&self, day: &str) -> bool {
        self.from.as_deref().is_none_or(|from| from <= day) && self.to.as_deref().is_none_or(|to| day <= to)
    }

    /// The condition on the column `date`. Nothing but digits and hyphens is in it.
    fn condition(&self) -> Option<String> {
        let from = self.from.iter().map(|day| format!("date >= '{day}'"));
        let all: Vec<String> = from.chain(self.to.iter().map(|day| format!("date <= '{day}'"))).collect();
        (!all.is_empty()).then(|| all.join(" AND "))
    }
}

/// An engine that answers questions to one dataset.
pub struct Engine {
    context: SessionContext,
    runtime: Runtime,
    root: PathBuf,
    /// The days and hosts that are asked, with the days of each host.
    days: BTreeSet<String>,
    hosts: BTreeMap<String, Vec<String>>,
    /// The URL of the dataset, with a slash at its end.
    url: String,
}

/// What is asked.
enum Question<'a> {
    Sql(&'a str),
    View(&'a View),
}

impl Engine {
    /// Opens a dataset: the table `fleet` of these days, and a table for each of [`VIEWS`].
    ///
    /// # Errors
    /// If something is wrong with a file, which would make all answers wrong.
    pub fn open(dataset: &Dataset, days: &Days) -> Result<Self, FleetError> {
        if let Some(error) = dataset.check(false)?.wrong.into_iter().next() {
            return Err(error);
        }
        let failed = |error: std::io::Error| FleetError::from(DataFusionError::from(error));
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(failed)?;
        let bounded = RuntimeEnvBuilder::new().with_memory_limit(MEMORY, 1.0).with_max_temp_directory_size(TEMPORARY);
        let config = SessionConfig::new().with_information_schema(true);
        let context = SessionContext::new_with_config_rt(config, bounded.build_arc()?);
        let partitions = ["date", "host"].map(|name| (name.to_owned(), DataType::Utf8)).to_vec();
        let (mut days_of, mut hosts) = (BTreeSet::new(), BTreeMap::<String, Vec<String>>::new());
        for (day, host) in dataset.days()?.into_keys().filter(|(day, _)| days.has(day)) {
            hosts.entry(host).or_default().push(day.clone());
            days_of.insert(day);
        }
        let options = files_of().with_table_partition_cols(partitions);
        let url = location(dataset, &context)?;
        let (table, condition) = match days.condition() {
            Some(condition) => ("fleet_of_all_days", Some(condition)),
            None => ("fleet", None),
        };
        runtime.block_on(async {
            context.register_listing_table(table, &url, options, Some(columns()), None).await?;
            if let Some(condition) = condition {
                context.sql(&format!("CREATE VIEW fleet AS SELECT * FROM {table} WHERE {condition}")).await?;
            }
            for view in VIEWS {
                context.sql(&format!("CREATE VIEW {} AS {}", view.name, view.sql)).await?;
            }
            Ok::<_, DataFusionError>(())
        })?;
        Ok(Self { context, runtime, root: dataset.root().into(), days: days_of, hosts, url })
    }

    /// Answers a query. A statement that would change or write something is refused.
    ///
    /// # Errors
    /// If the query is wrong, or takes too much memory, or a file cannot be read, or there are more than 100,000 rows.
    pub fn ask(&self, sql: &str) -> Result<Answer, FleetError> {
        self.answer(&Question::Sql(sql), None)
    }

    /// Answers a view, in its order, with at most so many rows. The order of a view is lost in a query on it.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn ask_view(&self, view: &View, most: Option<usize>) -> Result<Answer, FleetError> {
        self.answer(&Question::View(view), most)
    }

    /// Writes an answer of any size, of which a part is held at a time.
    ///
    /// # Errors
    /// As [`ask`](Self::ask), and if it cannot be written.
    pub fn write(&self, sql: &str, format: RowFormat, out: &mut dyn Write) -> Result<(), FleetError> {
        self.write_rows(&Question::Sql(sql), None, format, out)
    }

    /// The same for a view, in its order, with at most so many rows.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_view(
        &self,
        view: &View,
        most: Option<usize>,
        format: RowFormat,
        out: &mut dyn Write,
    ) -> Result<(), FleetError> {
        self.write_rows(&Question::View(view), most, format, out)
    }

    /// The answers of views with at most so many rows each, as tables and pictures.
    ///
    /// # Errors
    /// As [`ask`](Self::ask), and if there are no rows at all.
    pub fn report(&self, views: &[View], most: usize) -> Result<Sheet, FleetError> {
        let (Some(first), Some(last)) = (self.days.first(), self.days.last()) else {
            return Err(FleetError::NoRows { path: self.root.clone() });
        };
        let days = if first == last { format!("{first} (UTC)") } else { format!("{first} to {last} (UTC)") };
        let hosts = match self.hosts.len() {
            1 => "1 host".into(),
            hosts => format!("{} hosts", units::count(hosts as u64)),
        };
        let rows = self.ask("SELECT COUNT(*) FROM fleet")?.table()?.rows.concat().concat();
        let facts = vec![self.root.display().to_string(), days, hosts, format!("{rows} rows")];
        let answer = |view: &View| {
            // One more tells whether rows are left out.
            let mut answer = self.ask_view(view, Some(most.saturating_add(1)))?;
            let more = answer.cut(most);
            Ok(sheet::Answer {
                name: view.name.into(),
                about: view.about(),
                note: more.then(|| format!("The first {most} rows; --rows shows more.")),
                bars: pictures::bars(view.name, &answer)?,
                table: answer.table()?,
            })
        };
        let answers = views.iter().map(answer).collect::<Result<_, FleetError>>()?;
        Ok(Sheet { title: "A fleet's memory".into(), facts, answers })
    }

    fn write_rows(
        &self,
        question: &Question<'_>,
        most: Option<usize>,
        format: RowFormat,
        out: &mut dyn Write,
    ) -> Result<(), FleetError> {
        let mut writer = RowWriter::new(format, out);
        self.each(question, most, |batch| writer.write(&batch))?;
        writer.end()
    }

    fn answer(&self, question: &Question<'_>, most: Option<usize>) -> Result<Answer, FleetError> {
        let mut answer = Answer::default();
        let mut rows = 0;
        self.each(question, most, |batch| {
            rows += batch.num_rows();
            answer.batches.push(batch);
            if rows > MOST_ROWS { Err(FleetError::TooManyRows { most: MOST_ROWS }) } else { Ok(()) }
        })?;
        Ok(answer)
    }

    /// Calls `each` with the rows of an answer, in their order. There is at least one batch, which may have no rows.
    fn each(
        &self,
        question: &Question<'_>,
        most: Option<usize>,
        mut each: impl FnMut(RecordBatch) -> Result<(), FleetError>,
    ) -> Result<(), FleetError> {
        self.runtime.block_on(async {
            let frame = match question {
                Question::Sql(sql) => self.plan(sql).await?,
                Question::View(view) if view.by_host => self.by_hosts(view).await?,
                Question::View(view) => self.plan(view.sql).await?,
            };
            // An EXPLAIN has no plan within a limit.
            let frame = if most.is_some() { frame.limit(0, most)? } else { frame };
            each(RecordBatch::new_empty(Arc::new(frame.schema().as_arrow().clone())))?;
            let mut batches = frame.execute_stream().await?;
            while let Some(batch) = batches.next().await {
                each(batch?)?;
            }
            Ok(())
        })
    }

    async fn plan(&self, sql: &str) -> Result<DataFrame, DataFusionError> {
        let reading = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
        self.context.sql_with_options(sql, reading).await
    }

    /// A view by host, asked of one host after the other, on each processor. So each group is found once, in a small
    /// table. docs/fleet.md has the figures.
    async fn by_hosts(&self, view: &View) -> Result<DataFrame, DataFusionError> {
        let whole = self.plan(view.sql).await?;
        if self.hosts.is_empty() {
            return Ok(whole);
        }
        let answers = self.hosts.iter().map(|(host, days)| {
            let asked = self.of_host(host, days).and_then(|context| Ok((context, with_host(view.sql, host)?)));
            let answer = async {
                let (context, sql) = asked?;
                context.sql(&sql).await?.collect().await
            };
            async { tokio::spawn(answer).await.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))? }
        });
        // While one ends and another one begins, no processor waits.
        let at_once = 2 * std::thread::available_parallelism().map_or(1, NonZero::get);
        let answers: Vec<Vec<RecordBatch>> =
            futures_util::stream::iter(answers).buffered(at_once).try_collect().await?;
        let schema = Arc::new(whole.schema().as_arrow().clone());
        let named = |batch: RecordBatch| RecordBatch::try_new(Arc::clone(&schema), batch.columns().to_vec());
        let rows = answers.into_iter().flatten().map(named).collect::<Result<_, _>>()?;
        let joined = SessionContext::new_with_config_rt(SessionConfig::new(), self.context.runtime_env());
        joined.register_table("answers", Arc::new(MemTable::try_new(schema, vec![rows])?))?;
        joined.sql(&format!("SELECT * FROM answers ORDER BY {}", view.order())).await
    }

    /// The table `fleet` with the rows of one host, for one processor. It has no columns of the path.
    fn of_host(&self, host: &str, days: &[String]) -> Result<SessionContext, DataFusionError> {
        let folders = days.iter().map(|day| ListingTableUrl::parse(format!("{}{}/", self.url, folder(day, host))));
        let files = ListingTableConfig::new_with_multi_paths(folders.collect::<Result<_, _>>()?);
        let files = files.with_listing_options(files_of()).with_schema(columns());
        let config = SessionConfig::new().with_target_partitions(1).with_batch_size(HOST_BATCH);
        let context = SessionContext::new_with_config_rt(config, self.context.runtime_env());
        context.register_table("fleet", Arc::new(ListingTable::try_new(files)?))?;
        Ok(context)
    }
}

/// The query with a constant in the place of the column `host`, which is no key of groups then. Its columns may have
/// other names.
fn with_host(sql: &str, host: &str) -> Result<String, DataFusionError> {
    let tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize();
    let tokens = tokens.map_err(|error| DataFusionError::from(ParserError::TokenizerError(error.to_string())))?;
    let constant = |token: Token| match token {
        Token::Word(word) if word.value == "host" => Token::SingleQuotedString(host.into()),
        other => other,
    };
    Ok(tokens.into_iter().map(|token| constant(token).to_string()).collect())
}

/// The URL of a dataset, whose bucket the engine knows then.
fn location(dataset: &Dataset, context: &SessionContext) -> Result<String, DataFusionError> {
    #[cfg(feature = "object-store")]
    if let Some(bucket) = dataset.bucket() {
        let url = ListingTableUrl::parse(format!("{}/", dataset.root().display().to_string().trim_end_matches('/')))?;
        context.register_object_store(url.object_store().as_ref(), bucket);
        return Ok(url.to_string());
    }
    Ok(format!("{}/", dataset.root().canonicalize()?.display()))
}

/// How the files of a folder are read.
fn files_of() -> ListingOptions {
    let files = ParquetFormat::default().with_metadata_size_hint(Some(END));
    ListingOptions::new(Arc::new(files)).with_file_extension(".parquet")
}

/// The columns of a file, for this engine's version of Arrow.
fn columns() -> Arc<Schema> {
    let field = |field: &Arc<arrow_schema::Field>| {
        let kind =
            if *field.data_type() == arrow_schema::DataType::Int64 { DataType::Int64 } else { DataType::Utf8View };
        Field::new(field.name(), kind, field.is_nullable())
    };
    Arc::new(Schema::new(schema().fields().iter().map(field).collect::<Vec<_>>()))
}
