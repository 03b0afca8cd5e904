//! Who is asked again. When somebody outside has changed an object behind others that had looked at it already, all plugins
//! run once more; of those outside only the ones that wished for it, and only where something changed behind them.

use serde_json::Value;

/// What is known of a mutating request from one round to the next.
#[derive(Default)]
pub struct Rounds {
    /// The object was changed by someone outside: all of ours run once more.
    pub wanted: bool,
    pub again: bool,
    pub webhooks: Invoked,
    pub policies: Invoked,
}

/// The webhooks, or the policies, of a request.
#[derive(Default)]
pub struct Invoked {
    /// Those that asked to be called again should something change behind them.
    pub asked_before: Vec<String>,
    /// Those that something has changed behind.
    pub to_ask: Vec<String>,
    /// What the last of them left.
    pub left: Option<Value>,
}

impl Invoked {
    pub fn changed(&mut self) {
        let before = std::mem::take(&mut self.asked_before);
        self.to_ask.extend(before);
    }

    /// To be called when their turn comes; in the second round others may have changed the object since.
    pub fn begin(&mut self, again: bool, object: Option<&Value>) {
        if again && self.left.as_ref() != object {
            self.changed();
        }
    }
}
