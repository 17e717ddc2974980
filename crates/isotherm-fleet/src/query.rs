//! Questions to a dataset in SQL, answered by DataFusion.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::arrow::{csv, json};
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::ListingOptions;
#[cfg(feature = "object-store")]
use datafusion::datasource::listing::ListingTableUrl;
use datafusion::error::DataFusionError;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use tokio::runtime::Runtime;

use crate::dataset::Dataset;
use crate::error::FleetError;
use crate::row::schema;
use crate::views::{VIEWS, View};

/// How many bytes a query may take. What needs more is put into temporary files.
const MEMORY: usize = 2 << 30;

/// An engine that answers questions to one dataset.
pub struct Engine {
    context: SessionContext,
    runtime: Runtime,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    batches: Vec<RecordBatch>,
}

impl Engine {
    /// Opens a dataset: the table `fleet`, and a table for each of [`VIEWS`].
    ///
    /// # Errors
    /// If something is wrong with a file, which would make all answers wrong.
    pub fn open(dataset: &Dataset) -> Result<Self, FleetError> {
        if let Some(error) = dataset.check()?.wrong.into_iter().next() {
            return Err(error);
        }
        let failed = |error: std::io::Error| FleetError::from(DataFusionError::from(error));
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(failed)?;
        let memory = RuntimeEnvBuilder::new().with_memory_limit(MEMORY, 1.0).build_arc()?;
        let context = SessionContext::new_with_config_rt(SessionConfig::new(), memory);
        let partitions = ["date", "host"].map(|name| (name.to_owned(), DataType::Utf8)).to_vec();
        let options = ListingOptions::new(Arc::new(ParquetFormat::default()))
            .with_file_extension(".parquet")
            .with_table_partition_cols(partitions);
        let root = location(dataset, &context)?;
        runtime.block_on(async {
            context.register_listing_table("fleet", &root, options, Some(columns()), None).await?;
            for view in VIEWS {
                context.sql(&format!("CREATE VIEW {} AS {}", view.name, view.sql)).await?;
            }
            Ok::<_, DataFusionError>(())
        })?;
        Ok(Self { context, runtime })
    }

    /// Answers a query. A statement that would change or write something is refused.
    ///
    /// # Errors
    /// If the query is wrong, or takes too much memory, or a file cannot be read.
    pub fn ask(&self, sql: &str) -> Result<Answer, FleetError> {
        self.answer(sql, None)
    }

    /// Answers a view, in its order, with at most so many rows. The order of a view is lost in a query on it.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn ask_view(&self, view: &View, most: Option<usize>) -> Result<Answer, FleetError> {
        self.answer(view.sql, most)
    }

    fn answer(&self, sql: &str, most: Option<usize>) -> Result<Answer, FleetError> {
        let reading = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
        let batches = self.runtime.block_on(async {
            let frame = self.context.sql_with_options(sql, reading).await?.limit(0, most)?;
            let empty = RecordBatch::new_empty(Arc::new(frame.schema().as_arrow().clone()));
            let mut batches = frame.collect().await?;
            if batches.is_empty() {
                batches.push(empty);
            }
            Ok::<_, DataFusionError>(batches)
        })?;
        Ok(Answer { batches })
    }
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

/// The columns of a file, for this engine's version of Arrow.
fn columns() -> Arc<Schema> {
    let field = |field: &Arc<arrow_schema::Field>| {
        let kind = if *field.data_type() == arrow_schema::DataType::Int64 { DataType::Int64 } else { DataType::Utf8 };
        Field::new(field.name(), kind, field.is_nullable())
    };
    Arc::new(Schema::new(schema().fields().iter().map(field).collect::<Vec<_>>()))
}

impl Answer {
    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// A table for people. Names have no control characters.
    ///
    /// # Errors
    /// If a value has no text.
    pub fn text(&self) -> Result<String, FleetError> {
        let table = pretty_format_batches(&self.batches).map_err(DataFusionError::from)?.to_string();
        Ok(isotherm_core::sanitise_lines(&table).to_string())
    }

    /// Comma-separated values, with the names of the columns in the first line.
    ///
    /// # Errors
    /// If a value has no text.
    pub fn csv(&self) -> Result<Vec<u8>, FleetError> {
        let mut writer = csv::Writer::new(Vec::new());
        self.batches.iter().try_for_each(|batch| writer.write(batch)).map_err(DataFusionError::from)?;
        Ok(writer.into_inner())
    }

    /// An object of JSON for each row, each on a line, with nulls.
    ///
    /// # Errors
    /// If a value has no text.
    pub fn json(&self) -> Result<Vec<u8>, FleetError> {
        let options = json::WriterBuilder::new().with_explicit_nulls(true);
        let mut writer = options.build::<_, json::writer::LineDelimited>(Vec::new());
        let written = self.batches.iter().try_for_each(|batch| writer.write(batch)).and_then(|()| writer.finish());
        written.map_err(DataFusionError::from)?;
        Ok(writer.into_inner())
    }
}
