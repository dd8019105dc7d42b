use crate::report::Report;
use clap::Args;
use mla_prologue_cases::Result;
use mla_prologue_kernel::{Device, Listing};
use serde_json::json;

#[derive(Args)]
pub struct Devices {
    #[command(flatten)]
    pub report: Report,
}

/// Lists every device with what it is, or why it cannot be used.
pub fn devices(args: &Devices) -> Result<()> {
    let listings = Device::list();
    let state = |listing: &Listing| match &listing.state {
        Ok(what) => what.clone(),
        Err(error) => error.to_string(),
    };
    let mut text = String::new();
    for listing in &listings {
        let mark = if listing.state.is_ok() { "yes" } else { "no" };
        text += &format!("{mark:<4}{:<10}{}\n", listing.name, state(listing));
    }
    text += "yes reference the reference: unfused, on the CPU\n";
    let json = listings.iter().map(|listing| {
        json!({"name": listing.name, "usable": listing.state.is_ok(), "is": state(listing)})
    });
    args.report.write(&text, &json!({"devices": json.collect::<Vec<_>>()}))
}
