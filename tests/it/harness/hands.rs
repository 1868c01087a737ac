//! What a person does in a browser: points, types, looks at it in the dark and on a phone.

use serde_json::{Value, json};

use super::browser::Browser;
use super::until;

/// The name by which `WebDriver` speaks of an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Of a phone, whose bars for scrolling take no room, and of a desk.
pub(crate) const PHONE: (u32, u32) = (360, 740);
pub(crate) const DESK: (u32, u32) = (1280, 900);

/// The key that leads to the next control.
pub(crate) const TAB: &str = "\u{e004}";

impl Browser {
    /// Opens the dashboard and logs in; the list of books is shown then.
    pub(crate) async fn log_in(&self, url: &str, token: &str) {
        self.visit(url).await;
        self.type_into("#token", token).await;
        self.press("form button[type=submit]").await;
        self.sees("a[href='/new']").await;
    }

    /// What `script` gives in the page, once it is neither null nor false.
    pub(crate) async fn seen(&self, script: &str, arguments: Value) -> Value {
        until(script, async || {
            let value = self.run(script, arguments.clone()).await;
            let there = !value.is_null() && value != false && value.get("error").is_none();
            there.then_some(value)
        })
        .await
    }

    /// Waits until something that `css` selects can be seen.
    pub(crate) async fn sees(&self, css: &str) {
        let script = "return document.querySelector(arguments)?.checkVisibility() ?? false;";
        self.seen(script, json!(css)).await;
    }

    /// The element that `css` selects, once it can be seen.
    async fn element(&self, css: &str) -> String {
        self.sees(css).await;
        let what = json!({"using": "css selector", "value": css});
        let element = self.command("element", what).await;
        element[ELEMENT].as_str().unwrap().to_owned()
    }

    /// Clicks on what `css` selects.
    pub(crate) async fn press(&self, css: &str) {
        let element = self.element(css).await;
        self.command(&format!("element/{element}/click"), json!({}))
            .await;
    }

    /// Types into what `css` selects; into a field for files, their paths.
    pub(crate) async fn type_into(&self, css: &str, text: &str) {
        let element = self.element(css).await;
        let text = json!({"text": text});
        self.command(&format!("element/{element}/value"), text)
            .await;
    }

    /// Empties a field and types into it.
    pub(crate) async fn retype(&self, css: &str, text: &str) {
        let element = self.element(css).await;
        self.command(&format!("element/{element}/clear"), json!({}))
            .await;
        self.type_into(css, text).await;
    }

    /// Presses a key, wherever the focus is.
    pub(crate) async fn key(&self, key: &str) {
        let strokes = ["keyDown", "keyUp"].map(|kind| json!({"type": kind, "value": key}));
        let keyboard = json!({"type": "key", "id": "keyboard", "actions": strokes});
        self.command("actions", json!({"actions": [keyboard]}))
            .await;
    }

    /// The text of what `css` selects, once it is there.
    pub(crate) async fn text_of(&self, css: &str) -> String {
        let script = "const found = document.querySelector(arguments);
            return found && (found.value ?? found.textContent);";
        let text = self.seen(script, json!(css)).await;
        text.as_str().unwrap().to_owned()
    }

    /// The texts of all that `css` selects.
    pub(crate) async fn texts(&self, css: &str) -> Vec<String> {
        let script =
            "return [...document.querySelectorAll(arguments)].map(one => one.textContent);";
        let texts = self.run(script, json!(css)).await;
        serde_json::from_value(texts).unwrap()
    }

    /// Pastes a text into what `css` selects, as from another program.
    pub(crate) async fn paste(&self, css: &str, text: &str) {
        self.sees(css).await;
        let script = "const [css, text] = arguments;
            const field = document.querySelector(css);
            field.focus();
            const data = new DataTransfer();
            data.setData('text/plain', text);
            const paste = new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true});
            if (field.dispatchEvent(paste)) document.execCommand('insertText', false, text);
            return true;";
        self.seen(script, json!([css, text])).await;
    }

    /// The tab is looked at, and others are not.
    pub(crate) async fn bring_to_front(&self) {
        self.cdp("Page.bringToFront", json!({})).await;
    }

    /// The tab gets a screen of this size.
    pub(crate) async fn on_screen(&self, size: (u32, u32)) {
        let metrics = json!({"width": size.0, "height": size.1, "deviceScaleFactor": 1,
                             "mobile": size == PHONE});
        self.cdp("Emulation.setDeviceMetricsOverride", metrics)
            .await;
    }

    /// The person likes it `light` or `dark`, and without movement, so that what is looked at stands
    /// still.
    pub(crate) async fn in_colours(&self, scheme: &str) {
        let features = json!({"features": [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]});
        self.cdp("Emulation.setEmulatedMedia", features).await;
    }
}
