use super::args;
use mla_prologue::{Result, kernel::Device};
use serde_json::json;

/// Lists every device with what it is, or why it cannot be used.
pub fn devices(args: &args::Devices) -> Result<()> {
    let listings = Device::list();
    let state = |listing: &mla_prologue::kernel::Listing| match &listing.state {
        Ok(what) => what.clone(),
        Err(error) => error.to_string(),
    };
    let mut text = String::new();
    for listing in &listings {
        let mark = if listing.state.is_ok() { "yes" } else { "no" };
        text += &format!("{mark:<4}{:<10}{}\n", listing.name, state(listing));
    }
    text += "yes reference the unfused chain on the CPU\n";
    let json = listings.iter().map(|listing| {
        json!({"name": listing.name, "usable": listing.state.is_ok(), "is": state(listing)})
    });
    args.report.write(&text, &json!({"devices": json.collect::<Vec<_>>()}))
}
