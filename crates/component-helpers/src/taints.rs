//! Taints of nodes and tolerations of pods.

use k8s_openapi::api::core::v1::{Taint, Toleration};

/// Whether the toleration is meant for that taint.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    if !effect.is_empty() && effect != taint.effect || !key.is_empty() && key != taint.key {
        return false;
    }
    let (ours, theirs) = (toleration.value.as_deref().unwrap_or_default(), taint.value.as_deref().unwrap_or_default());
    let numbers = || Some((theirs.parse::<i64>().ok()?, ours.parse::<i64>().ok()?));
    match toleration.operator.as_deref().unwrap_or_default() {
        "" | "Equal" => ours == theirs,
        "Exists" => true,
        "Gt" => numbers().is_some_and(|(theirs, ours)| theirs > ours),
        "Lt" => numbers().is_some_and(|(theirs, ours)| theirs < ours),
        _ => false,
    }
}

/// The first taint with one of these effects that none of the tolerations is meant for.
pub fn first_untolerated<'a>(taints: &'a [Taint], tolerations: &[Toleration], effects: &[&str]) -> Option<&'a Taint> {
    let counting = taints.iter().filter(|taint| effects.contains(&taint.effect.as_str()));
    counting.into_iter().find(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toleration(text: &str) -> Toleration {
        let mut parts = text.split(' ').map(|part| (part != "-").then(|| part.to_owned()));
        let mut next = || parts.next().flatten();
        Toleration { key: next(), operator: next(), value: next(), effect: next(), toleration_seconds: None }
    }

    #[test]
    fn a_toleration_is_meant_for_taints_like_it() {
        let taint =
            Taint { key: "size".into(), value: Some("7".into()), effect: "NoSchedule".into(), time_added: None };
        for (text, expected) in [
            ("size - 7 NoSchedule", true),
            ("size Equal 7 -", true),
            ("size Equal 8 -", false),
            ("size Exists - NoExecute", false),
            ("- Exists - -", true),
            ("other Exists - -", false),
            ("size Gt 6 NoSchedule", true),
            ("size Gt 7 NoSchedule", false),
            ("size Lt 8 NoSchedule", true),
            ("size Lt x NoSchedule", false),
        ] {
            assert_eq!(tolerates(&toleration(text), &taint), expected, "{text}");
        }
    }
}
