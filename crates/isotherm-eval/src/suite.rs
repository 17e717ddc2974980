//! Suites: the programs of an evaluation, described in YAML.

use std::path::{Path, PathBuf};

use isotherm_scheme::form::{Fields, Node};
use isotherm_scheme::{Diagnostics, Document, Position};

use crate::EvalError;

/// The suites that are part of isotherm.
const SHIPPED: [(&str, &str); 3] = [
    ("programs", include_str!("../../../suites/programs.yaml")),
    ("parsec-splash2x", include_str!("../../../suites/parsec-splash2x.yaml")),
    ("patterns", include_str!("../../../suites/patterns.yaml")),
];

/// Programs to evaluate.
#[derive(Clone, Debug)]
pub struct Suite {
    /// The name.
    pub name: String,
    /// What it has, in a sentence.
    pub about: String,
    /// What to do where a program is missing, in a sentence.
    pub install: Option<String>,
    /// The directory of its file; the current one for a shipped suite.
    pub directory: PathBuf,
    /// Shell commands that run once before all preparations of the workloads.
    pub prepare: Option<String>,
    /// The programs.
    pub workloads: Vec<Workload>,
}

/// A program with its load.
#[derive(Clone, Debug, Default)]
pub struct Workload {
    /// The name. If the papers have a workload of this name, the tables have their figures beside ours.
    pub name: String,
    /// What it does, in a sentence.
    pub about: String,
    /// How much memory it takes about, such as `500M`.
    pub size: Option<String>,
    /// Its licence.
    pub licence: Option<String>,
    /// Where it comes from.
    pub origin: Option<String>,
    /// Why it cannot be run, in a clause. Tables show it in place of figures.
    pub missing: Option<String>,
    /// Programs that must be in `$PATH`.
    pub needs: Vec<String>,
    /// Shell commands that run once before the first run.
    pub prepare: Option<String>,
    /// Shell commands: what is measured, from their start to their end.
    pub command: String,
    /// Where the program writes how long it took, if that is not the time of the whole command.
    pub runtime: Option<Runtime>,
    /// Whether most of its memory is of files, which can be reclaimed without swap.
    pub files: bool,
    /// How it gets huge pages for all memory in `thp`.
    pub huge_pages: HugePages,
}

/// Where a program writes its runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runtime {
    /// The text before the number, in what the command writes. The last such number counts.
    pub after: String,
    /// How many of its units are a second.
    pub per_second: u32,
}

/// How a program gets huge pages for all its memory, if the setting of the machine is `madvise`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// By the allocator of the GNU C library, which calls madvise(2) if a variable asks for it.
    #[default]
    Allocator,
    /// By variables of its own.
    Variables(Vec<(String, String)>),
    /// It cannot: why, in a clause.
    No(String),
}

impl HugePages {
    /// The environment variables that ask for huge pages, or why there are none.
    pub(crate) fn variables(&self) -> Result<Vec<(String, String)>, &str> {
        match self {
            Self::Allocator => Ok(vec![("GLIBC_TUNABLES".into(), "glibc.malloc.hugetlb=1".into())]),
            Self::Variables(variables) => Ok(variables.clone()),
            Self::No(why) => Err(why),
        }
    }
}

impl Runtime {
    /// The seconds that a program has written.
    pub(crate) fn read(&self, output: &str) -> Option<f64> {
        let (_, rest) = output.rsplit_once(&self.after)?;
        let start = rest.find(|c: char| c.is_ascii_digit())?;
        let number = &rest[start..];
        let end = number.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(number.len());
        let value: f64 = number[..end].trim_end_matches('.').parse().ok()?;
        Some(value / f64::from(self.per_second))
    }
}

impl Suite {
    /// The names of the shipped suites.
    pub fn shipped() -> impl Iterator<Item = &'static str> {
        SHIPPED.into_iter().map(|(name, _)| name)
    }

    /// The suite of this name, or of this file, whose path ends in `.yaml` or has a slash.
    ///
    /// # Errors
    /// If there is no such suite, or its file has errors.
    pub fn open(name: &str) -> Result<Self, EvalError> {
        if name.ends_with(".yaml") || name.contains('/') {
            let path = Path::new(name);
            let text = isotherm_scheme::read_text(path).map_err(EvalError::Suite)?;
            let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            return Self::parse(name, &text, directory);
        }
        let shipped = SHIPPED.into_iter().find(|(shipped, _)| *shipped == name);
        let (name, text) = shipped.ok_or_else(|| EvalError::UnknownSuite {
            name: name.into(),
            shipped: Self::shipped().collect::<Vec<_>>().join(", "),
        })?;
        Self::parse(&format!("{name}.yaml"), text, Path::new("."))
    }

    /// Reads a suite. `file` is its name in messages.
    ///
    /// # Errors
    /// All errors in the text.
    pub fn parse(file: &str, text: &str, directory: &Path) -> Result<Self, EvalError> {
        let is_blank = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
        if text.lines().all(is_blank) {
            return Err(EvalError::Failed(format!("{file} is empty; a suite has a name and workloads")));
        }
        let document = Document::parse(file, text).map_err(EvalError::Suite)?;
        let read = document.read(|diagnostics| {
            let Some(root) = document.root() else {
                return diagnostics.fail(Position::START, "expected a suite, a map with the field workloads");
            };
            suite(root, diagnostics)
        });
        let mut suite = read.map_err(EvalError::Suite)?.ok_or_else(|| EvalError::Failed(format!("{file} is empty")))?;
        suite.directory = std::path::absolute(directory).map_err(EvalError::system("no current directory"))?;
        Ok(suite)
    }

    /// Whether its commands need a tree of PARSEC.
    pub fn needs_parsec(&self) -> bool {
        let all = self.workloads.iter().map(|workload| workload.prepare.as_deref());
        all.chain([self.prepare.as_deref()]).flatten().any(|script| script.contains("$PARSEC"))
    }

    /// The workloads of these names, in the order of the suite; all without names. A name may lack its group if only
    /// one has it: `fft` is `splash2x/fft`.
    ///
    /// # Errors
    /// If one of the names is unknown, or that of several.
    pub fn select(&self, names: &[String]) -> Result<Vec<&Workload>, EvalError> {
        let wanted = names.iter().map(|name| self.named(name)).collect::<Result<Vec<_>, _>>()?;
        let is_wanted = |workload: &&Workload| wanted.is_empty() || wanted.contains(&&*workload.name);
        Ok(self.workloads.iter().filter(is_wanted).collect())
    }

    /// The whole name of a workload.
    fn named(&self, name: &str) -> Result<&str, EvalError> {
        let all = || self.workloads.iter().map(|workload| &*workload.name);
        let mut alike = all().filter(|whole| whole.rsplit_once('/').is_some_and(|(_, last)| last == name));
        match (all().find(|whole| *whole == name), alike.next(), alike.next()) {
            (Some(whole), ..) | (None, Some(whole), None) => Ok(whole),
            (None, None, _) | (None, Some(_), Some(_)) => Err(EvalError::UnknownWorkload {
                suite: self.name.clone(),
                name: name.to_owned(),
                known: all().collect::<Vec<_>>().join(", "),
            }),
        }
    }
}

fn suite(root: &Node, diagnostics: &mut Diagnostics) -> Option<Suite> {
    let fields = Fields::open(root, "a suite", &["name", "about", "install", "prepare", "workloads"], diagnostics)?;
    let name = required(&fields, "name", diagnostics);
    let about = optional(&fields, "about", diagnostics);
    let install = optional(&fields, "install", diagnostics);
    let prepare = optional(&fields, "prepare", diagnostics);
    let listed = fields.require("workloads", diagnostics)?;
    let workloads = listed.list("workloads", diagnostics, workload)?;
    let mut names: Vec<&str> = workloads.iter().map(|workload| &*workload.name).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return diagnostics.fail(listed.position, format!("two workloads have the name {:?}", twice[0]));
    }
    let about = about.unwrap_or_default();
    Some(Suite { name: name?, about, install, directory: PathBuf::new(), prepare, workloads })
}

const WORKLOAD: [&str; 12] = [
    "name",
    "about",
    "size",
    "licence",
    "origin",
    "missing",
    "needs",
    "prepare",
    "command",
    "runtime",
    "files",
    "huge_pages",
];

fn workload(node: &Node, diagnostics: &mut Diagnostics) -> Option<Workload> {
    let fields = Fields::open(node, "a workload", &WORKLOAD, diagnostics)?;
    let name = required(&fields, "name", diagnostics)?;
    // It is part of the names of files.
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if !name.chars().all(is_allowed) || name.contains("..") || name.starts_with('/') {
        return diagnostics
            .fail(node.position, format!("the name {name:?} has other characters than a-z, 0-9, - _ . /"));
    }
    let missing = optional(&fields, "missing", diagnostics);
    let command = match &missing {
        Some(_) => optional(&fields, "command", diagnostics).unwrap_or_default(),
        None => required(&fields, "command", diagnostics)?,
    };
    let word = |node: &Node, diagnostics: &mut Diagnostics| Some(node.text("a program", diagnostics)?.to_owned());
    let needs = fields.get_or("needs", Vec::new(), |node| node.list("programs", diagnostics, word))?;
    let files = fields.get_or("files", false, |node| node.flag(diagnostics))?;
    let runtime = fields.get_or("runtime", None, |node| runtime(node, diagnostics).map(Some))?;
    let huge_pages = fields.get_or("huge_pages", HugePages::Allocator, |node| huge_pages(node, diagnostics))?;
    let mut text = |field| optional(&fields, field, diagnostics);
    let (about, size, licence, origin) =
        (text("about").unwrap_or_default(), text("size"), text("licence"), text("origin"));
    let prepare = text("prepare");
    Some(Workload { name, about, size, licence, origin, missing, needs, prepare, command, runtime, files, huge_pages })
}

fn runtime(node: &Node, diagnostics: &mut Diagnostics) -> Option<Runtime> {
    let fields = Fields::open(node, "a runtime", &["after", "unit"], diagnostics)?;
    let after = required(&fields, "after", diagnostics)?;
    let units = [("s", 1), ("ms", 1000), ("us", 1_000_000)];
    let per_second = fields.get_or("unit", 1, |node| node.word("unit", &units, diagnostics))?;
    Some(Runtime { after, per_second })
}

fn huge_pages(node: &Node, diagnostics: &mut Diagnostics) -> Option<HugePages> {
    let fields = Fields::open(node, "a way to huge pages", &["variables", "no"], diagnostics)?;
    if let Some(why) = optional(&fields, "no", diagnostics) {
        return Some(HugePages::No(why));
    }
    let variables = fields.require("variables", diagnostics)?;
    let one = |node: &Node, diagnostics: &mut Diagnostics| {
        let text = node.text("a variable", diagnostics)?;
        match text.split_once('=') {
            Some((name, value)) => Some((name.to_owned(), value.to_owned())),
            None => diagnostics.fail(node.position, format!("expected NAME=VALUE, found {text:?}")),
        }
    };
    variables.list("variables", diagnostics, one).map(HugePages::Variables)
}

fn optional(fields: &Fields<'_>, name: &str, diagnostics: &mut Diagnostics) -> Option<String> {
    Some(fields.get(name)?.text("text", diagnostics)?.to_owned())
}

fn required(fields: &Fields<'_>, name: &str, diagnostics: &mut Diagnostics) -> Option<String> {
    Some(fields.require(name, diagnostics)?.text("text", diagnostics)?.to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Suite, EvalError> {
        Suite::parse("mine.yaml", text, Path::new("/suites"))
    }

    #[test]
    fn a_suite_has_programs_with_what_they_need() {
        let suite = parse(
            "name: mine\nworkloads:\n  - name: a/b\n    command: run it\n    needs: [sh, awk]\n    files: yes\n    \
             runtime: {after: \"took:\", unit: ms}\n    huge_pages: {variables: [A=b=c]}\n  \
             - {name: none, missing: it needs a display}\n",
        )
        .unwrap();
        let [first, second] = &suite.workloads[..] else { panic!("{suite:?}") };
        assert_eq!((&*first.command, &first.needs[..]), ("run it", &["sh".to_owned(), "awk".to_owned()][..]));
        assert_eq!(first.runtime.as_ref().unwrap().read("took: 1\ntook: 1500 ms"), Some(1.5));
        assert_eq!(first.huge_pages.variables().unwrap(), [("A".into(), "b=c".into())]);
        assert!(first.files && second.missing.is_some());
        assert_eq!(suite.directory, Path::new("/suites"));
        assert!(suite.select(&["none".into()]).is_ok_and(|found| found.len() == 1));
        let error = suite.select(&["nothing".into()]).unwrap_err().to_string();
        assert!(error.contains("a/b, none"), "{error}");
        // Without its group, a name may be that of one only.
        assert!(suite.select(&["b".into()]).is_ok_and(|found| found[0].name == "a/b"));
        let two = parse("name: two\nworkloads:\n  - {name: a/b, command: c}\n  - {name: d/b, command: c}\n").unwrap();
        assert!(two.select(&["b".into()]).is_err() && two.select(&["d/b".into()]).is_ok_and(|found| found.len() == 1));
    }

    #[test]
    fn errors_have_their_places() {
        let error = parse("name: x\nworkloads:\n  - {name: a, comand: b}\n").unwrap_err().to_string();
        assert!(error.contains("mine.yaml:3:15") && error.contains("did you mean command?"), "{error}");
        for (text, part) in [
            ("name: x\nworkloads:\n  - {name: a}\n", "needs the field command"),
            ("name: x\nworkloads:\n  - {name: ../a, command: b}\n", "other characters"),
            ("name: x\nworkloads:\n  - {name: a, command: b}\n  - {name: a, command: b}\n", "two workloads"),
            ("name: x\nworkloads:\n  - {name: a, command: b, huge_pages: {variables: [A]}}\n", "NAME=VALUE"),
            ("name: x\n", "needs the field workloads"),
            ("a b c d\n", "expected a suite"),
            ("# nothing\n", "is empty"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn shipped_suites_are_right() {
        for name in Suite::shipped() {
            let suite = Suite::open(name).unwrap();
            assert_eq!(suite.name, name);
            assert!(!suite.workloads.is_empty() && !suite.about.is_empty());
        }
        assert!(Suite::open("nothing").unwrap_err().to_string().contains("programs"));
    }

    #[test]
    fn a_runtime_is_the_last_number_after_its_text() {
        let runtime = Runtime { after: "Total time".into(), per_second: 1_000_000 };
        assert_eq!(runtime.read("Total time with   :  2000000\n"), Some(2.0));
        assert_eq!(runtime.read("nothing"), None);
        assert_eq!(Runtime { after: "s".into(), per_second: 1 }.read("s 1.5. s"), None);
    }
}
