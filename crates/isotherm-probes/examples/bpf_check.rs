//! Opens the bpf probe, tries it on own memory, and says what it found: one small program to run on another kernel.

use std::process::ExitCode;

use isotherm_probes::bpf::BpfProbe;

fn main() -> ExitCode {
    let opened = BpfProbe::check().and_then(|()| BpfProbe::open());
    match opened {
        Ok(probe) => {
            println!(
                "bpf: works; {} levels of page tables, direct map at {:#x}, large folios are {}",
                probe.page_table_levels(),
                probe.direct_map(),
                if probe.clears_large_folios() { "cleared whole" } else { "left alone" }
            );
            ExitCode::SUCCESS
        }
        Err(e) => {
            println!("bpf: {e}");
            ExitCode::FAILURE
        }
    }
}
