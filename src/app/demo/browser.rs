//! The browser of whoever runs the demo.

use std::process::Stdio;

use tokio::process::Command;

/// Opens `url` in the browser, if there is one where a person looks. Whether it worked is not asked:
/// the address is printed too.
pub(super) fn open(url: &str) {
    let opener = if cfg!(target_os = "macos") {
        "open"
    } else {
        // Without a screen it would look for a browser that takes the terminal.
        let screen = ["DISPLAY", "WAYLAND_DISPLAY"].map(std::env::var_os);
        if screen.iter().all(Option::is_none) {
            return;
        }
        "xdg-open"
    };
    let mut command = Command::new(opener);
    // A browser that this starts is not the demo's to end: Ctrl-C goes to the demo's group.
    command.arg(url).stdin(Stdio::null()).process_group(0);
    let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
}
