//! Values of the node's flags, as upstream's kubelet and kubectl write them. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::Taint;
use machinery::quantity::Quantity;

pub fn pairs(texts: &[String]) -> anyhow::Result<BTreeMap<String, String>> {
    split_all(texts, '=')
}

pub fn thresholds(texts: &[String]) -> anyhow::Result<BTreeMap<String, String>> {
    split_all(texts, '<')
}

/// How long each soft threshold may be passed; every one needs a time.
pub fn grace_periods(soft: &[String], periods: &[String]) -> anyhow::Result<BTreeMap<String, Duration>> {
    const NAME: &str = "--eviction-soft-grace-period";
    let texts = pairs(periods).context(NAME)?;
    for signal in thresholds(soft).context("--eviction-soft")?.keys() {
        anyhow::ensure!(texts.contains_key(signal), "{NAME} has no value for {signal} of --eviction-soft");
    }
    let period = |(signal, text): (String, String)| {
        seconds(&text).map(|period| (signal, period)).map_err(|error| anyhow::anyhow!("{NAME}: {error}"))
    };
    texts.into_iter().map(period).collect()
}

fn split_all(texts: &[String], separator: char) -> anyhow::Result<BTreeMap<String, String>> {
    let split = texts.iter().filter(|text| !text.is_empty()).map(|text| {
        let (name, value) = text.split_once(separator).with_context(|| format!("{text:?} has no {separator:?}"))?;
        Ok((name.to_owned(), value.to_owned()))
    });
    split.collect()
}

/// `key=value:effect`, `key:effect`.
pub fn taint(text: &str) -> anyhow::Result<Taint> {
    let (rest, effect) = text.rsplit_once(':').with_context(|| format!("{text:?} has no taint effect"))?;
    if !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
        bail!("{effect:?} is not a taint effect");
    }
    let (key, value) = rest.split_once('=').map_or((rest, None), |(key, value)| (key, Some(value.to_owned())));
    Ok(Taint { key: key.to_owned(), value, effect: effect.to_owned(), time_added: None })
}

pub fn size(text: &str) -> anyhow::Result<u64> {
    let quantity = Quantity::parse(text).map_err(|_| anyhow::anyhow!("{text:?} is not a quantity"))?;
    u64::try_from(quantity.value()).context("a quantity must not be negative")
}

/// As Go writes times: `90s`, `5m`, `1h30m`.
pub fn seconds(text: &str) -> anyhow::Result<Duration> {
    let (mut total, mut rest) = (Duration::ZERO, text);
    while !rest.is_empty() {
        let end = rest.find(|character: char| !character.is_ascii_digit());
        let (number, after) = rest.split_at(end.unwrap_or(rest.len()));
        let unit = match after.chars().next() {
            Some('h') => 3600,
            Some('m') => 60,
            Some('s') => 1,
            _ => bail!("{text:?} has no unit: h, m or s"),
        };
        let number: u64 = number.parse().map_err(|_| anyhow::anyhow!("{text:?} is not a duration"))?;
        total += Duration::from_secs(number * unit);
        rest = &after[1..];
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soft_thresholds_need_a_time() {
        let texts = |text: &str| vec![text.to_owned()];
        let read = grace_periods(&texts("memory.available<1Gi"), &texts("memory.available=1m30s")).unwrap();
        assert_eq!(read.into_iter().collect::<Vec<_>>(), [("memory.available".to_owned(), Duration::from_secs(90))]);
        assert!(grace_periods(&texts("memory.available<1Gi"), &[]).is_err());
        assert!(grace_periods(&[], &[]).unwrap().is_empty());
    }

    #[test]
    fn taints_are_read_as_kubectl_writes_them() {
        let check = |text: &str, expected: (&str, Option<&str>, &str)| {
            let taint = taint(text).expect(text);
            assert_eq!((taint.key.as_str(), taint.value.as_deref(), taint.effect.as_str()), expected);
        };
        check("dedicated=gpu:NoSchedule", ("dedicated", Some("gpu"), "NoSchedule"));
        check("example.com/a:NoExecute", ("example.com/a", None, "NoExecute"));
        assert!(taint("a=b").is_err());
        assert!(taint("a=b:Never").is_err());
    }

    #[test]
    fn times_are_read_as_go_writes_them() {
        assert_eq!(seconds("1h30m5s").unwrap(), Duration::from_secs(5405));
        assert_eq!(seconds("5m0s").unwrap(), Duration::from_secs(300));
        assert!(seconds("5").is_err());
        assert!(seconds("m").is_err());
    }
}
