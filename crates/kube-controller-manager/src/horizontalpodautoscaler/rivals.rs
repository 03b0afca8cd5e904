//! Autoscalers whose pods are the same ones: each would undo what the other does, so none of them acts, as upstream.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use machinery::selector::LabelSelector;
use parking_lot::Mutex;
use reconcile::Key;

/// Several autoscalers for the same pods, in upstream's words.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("pods by selector {selector} are controlled by multiple HPAs: [{autoscalers}]")]
pub(super) struct Rivalry {
    selector: String,
    autoscalers: String,
}

/// What the targets of all autoscalers select, as far as they have been looked at.
#[derive(Default)]
pub(super) struct Rivals(Mutex<BTreeMap<Key, LabelSelector>>);

impl Rivals {
    pub fn keep_only(&self, keys: &[Key]) {
        self.0.lock().retain(|key, _| keys.contains(key));
    }

    /// Notes what an autoscaler's target selects. It fails where others select some of its pods, too.
    pub fn note(&self, autoscaler: Key, selector: &str, pods: &[Pod]) -> Result<(), Rivalry> {
        let Ok(parsed) = LabelSelector::parse(selector) else { return Ok(()) };
        let mut all = self.0.lock();
        all.insert(autoscaler.clone(), parsed);
        let selects = |selector: &LabelSelector| {
            pods.iter().any(|pod| {
                let labels = pod.metadata.labels.as_ref();
                selector.matches(|key| labels.and_then(|labels| labels.get(key)).map(String::as_str))
            })
        };
        let here = all.iter().filter(|(key, selector)| key.namespace == autoscaler.namespace && selects(selector));
        let names: Vec<String> = here.map(|(key, _)| format!("{{{} {}}}", key.name, key.namespace)).collect();
        match names.len() {
            0 | 1 => Ok(()),
            _ => Err(Rivalry { selector: selector.to_owned(), autoscalers: names.join(" ") }),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn two_for_the_same_pods_are_one_too_many() {
        let pod = |app: &str| serde_json::from_value(json!({"metadata": {"labels": {"app": app}}})).expect("a pod");
        let (web, other): (Pod, Pod) = (pod("web"), pod("other"));
        let rivals = Rivals::default();
        let key = |name: &str| Key::new("a", name);
        assert_eq!(rivals.note(key("one"), "app=web", std::slice::from_ref(&web)), Ok(()));
        assert_eq!(rivals.note(key("two"), "app=other", std::slice::from_ref(&other)), Ok(()));
        assert_eq!(rivals.note(Key::new("b", "one"), "app=web", std::slice::from_ref(&web)), Ok(()));
        let both = "pods by selector app=web are controlled by multiple HPAs: [{one a} {three a}]";
        let found = rivals.note(key("three"), "app=web", std::slice::from_ref(&web));
        assert_eq!(found.unwrap_err().to_string(), both);
        let found = rivals.note(key("one"), "app=web", std::slice::from_ref(&web));
        assert_eq!(found.unwrap_err().to_string(), both);
        // Without pods nobody is in another's way.
        assert_eq!(rivals.note(key("one"), "app=web", &[]), Ok(()));
        rivals.keep_only(&[key("one")]);
        assert_eq!(rivals.note(key("one"), "app=web", &[web]), Ok(()));
    }
}
