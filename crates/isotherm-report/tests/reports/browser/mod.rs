//! A report in headless Chromium.

use isotherm_report::{Format, Kind, Options, Selection, Source};
use isotherm_testing::browser::Page;

/// A report in a browser.
pub struct Opened {
    page: Page,
    _directory: tempfile::TempDir,
}

/// Opens a report. An error is the reason to skip the test.
pub fn open(source: &dyn Source, dark: bool, script: bool) -> Result<Opened, String> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("report.html");
    let mut out = std::fs::File::create(&file).unwrap();
    let (selection, options) = (Selection::default(), Options::default());
    isotherm_report::write(Kind::Html, Format::Html, source, &selection, &options, &mut out).unwrap();
    let mut page = Page::start(dark, script, None)?;
    page.open(&format!("file://{}", file.display()));
    Ok(Opened { page, _directory: directory })
}

impl std::ops::Deref for Opened {
    type Target = Page;

    fn deref(&self) -> &Page {
        &self.page
    }
}

impl std::ops::DerefMut for Opened {
    fn deref_mut(&mut self) -> &mut Page {
        &mut self.page
    }
}
