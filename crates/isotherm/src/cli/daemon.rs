//! The options of `isotherm daemon`.

use std::path::PathBuf;

use clap::Args;

/// Watch groups of processes all the time, as a configuration says
///
/// The daemon keeps a history, has metrics for Prometheus, and is asked and steered by `isotherm ctl` and by programs,
/// through a Unix socket. Without a configuration it watches all processes within 1 % of one CPU, and acts on nothing.
/// SIGHUP reads the configuration again; a wrong one leaves the one in force as it is. SIGTERM ends the daemon.
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct Daemon {
    /// The configuration [default: /etc/isotherm/isotherm.yaml if there is one, else the embedded one]
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Refuse groups that act, whether the configuration or a request asks for it
    #[arg(long)]
    pub watch_only: bool,
    /// Only check the configuration
    #[arg(long)]
    pub check: bool,
    /// Print the embedded configuration and exit
    #[arg(long, conflicts_with_all = ["config", "check"])]
    pub print_default: bool,
}

const AFTER_HELP: &str = "\
Examples:
  isotherm daemon                        watch all processes
  isotherm daemon --config my.yaml --check
  isotherm ctl status                    what is watched, and how much is idle?

Exit status: 0 after SIGTERM, or if the configuration is right; 1 otherwise.";
