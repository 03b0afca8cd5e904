//! What tools such as `crictl inspect` show beside a status: JSON under the key `info`, as other runtimes have it.

use std::collections::HashMap;

use serde_json::json;

use super::Service;
use crate::v1;

impl Service {
    pub(super) fn container_info(&self, status: &v1::ContainerStatus, verbose: bool) -> HashMap<String, String> {
        let linux = status.resources.as_ref().and_then(|resources| resources.linux.as_ref());
        let info = || json!({"pid": self.runtime.pid(&status.id).unwrap_or_default(), "resources": linux});
        shown(verbose, info)
    }

    pub(super) fn sandbox_info(&self, id: &str, verbose: bool) -> HashMap<String, String> {
        shown(verbose, || json!({"pid": self.runtime.pid(id).unwrap_or_default()}))
    }
}

pub(super) fn shown(verbose: bool, info: impl FnOnce() -> serde_json::Value) -> HashMap<String, String> {
    if verbose { [("info".to_owned(), info().to_string())].into() } else { HashMap::new() }
}
