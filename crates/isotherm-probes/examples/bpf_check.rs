//! Tests the bpf probe on this process's own memory and prints the result: a small program for use on other kernels.

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
                if probe.clears_large_folios() { "cleared as a whole" } else { "not cleared" }
            );
            ExitCode::SUCCESS
        }
        Err(e) => {
            println!("bpf: {}", isotherm_core::chain(&e));
            ExitCode::FAILURE
        }
    }
}
