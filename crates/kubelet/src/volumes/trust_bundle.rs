//! `clusterTrustBundle`: certificates that a cluster trusts, each once.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ClusterTrustBundleProjection;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::Error;
use crate::objects::Objects;

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";
const LINE_MAX: usize = 64;

pub(super) async fn certificates(objects: &Objects, source: &ClusterTrustBundleProjection) -> Result<Vec<u8>, Error> {
    let optional = source.optional.unwrap_or(false);
    if let Some(name) = &source.name {
        return match objects.trust_bundle(name).await {
            Ok(bundle) => Ok(normalized([bundle.spec.trust_bundle.as_str()])),
            Err(error) if error.is_not_found() && optional => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        };
    }
    let signer = source.signer_name.as_deref().unwrap_or_default();
    // No selector chooses nothing, an empty one everything.
    let bundles = match &source.label_selector {
        Some(selector) => objects.trust_bundles(signer, &selector_text(selector)).await?,
        None => Vec::new(),
    };
    if bundles.is_empty() && !optional {
        return Err(Error::NoTrustBundle);
    }
    Ok(normalized(bundles.iter().map(|bundle| bundle.spec.trust_bundle.as_str())))
}

/// A selector as the API takes it in a list.
fn selector_text(selector: &LabelSelector) -> String {
    let labels = selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
    let expressions = selector.match_expressions.iter().flatten().map(|expression| {
        let (key, values) = (&expression.key, expression.values.as_deref().unwrap_or_default().join(","));
        match expression.operator.as_str() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.clone(),
        }
    });
    labels.chain(expressions).collect::<Vec<_>>().join(",")
}

/// Each certificate once, without the text around them.
fn normalized<'a>(bundles: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
    let mut all = BTreeSet::new();
    for bundle in bundles {
        let mut rest = bundle;
        while let Some((_, after)) = rest.split_once(BEGIN) {
            let Some((body, after)) = after.split_once(END) else { break };
            // Headers inside a block hold a colon, base64 never does.
            let lines = body.lines().filter(|line| !line.contains(':'));
            all.insert(lines.flat_map(str::chars).filter(|character| !character.is_whitespace()).collect::<String>());
            rest = after;
        }
    }
    let mut text = String::new();
    for body in all {
        text.push_str(&format!("{BEGIN}\n"));
        for line in body.as_bytes().chunks(LINE_MAX) {
            text.push_str(&String::from_utf8_lossy(line));
            text.push('\n');
        }
        text.push_str(&format!("{END}\n"));
    }
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_shown_once() {
        let one = format!("text\n{BEGIN}\nYWJj\nZGVm\n{END}\nmore\n{BEGIN}\nYWJj\nZGVm\n{END}");
        let two = format!("{BEGIN}\nYWJjZGVm\n{END}\n{BEGIN}\nMTIz\n{END}\n");
        let expected = format!("{BEGIN}\nMTIz\n{END}\n{BEGIN}\nYWJjZGVm\n{END}\n");
        assert_eq!(String::from_utf8(normalized([one.as_str(), two.as_str()])).unwrap(), expected);
    }
}
