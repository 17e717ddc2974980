//! Prints the table of columns in `docs/recording.md`: `cargo run -p isotherm-record --example columns`.

fn main() {
    println!("{}", isotherm_record::column_table());
}
