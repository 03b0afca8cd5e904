//! Reads configuration files: keys and values, later files over earlier ones. Pure.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::Value;

/// What a key is set to, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    pub file: PathBuf,
    pub values: Vec<String>,
}

pub type Settings = BTreeMap<String, Setting>;

/// Of several files, in the order in which they are read. `key+` adds to what is there.
pub fn settings(files: &[(PathBuf, Vec<u8>)]) -> anyhow::Result<Settings> {
    let mut settings = Settings::new();
    for (file, text) in files {
        add(&mut settings, file, text).with_context(|| file.display().to_string())?;
    }
    Ok(settings)
}

fn add(settings: &mut Settings, file: &Path, text: &[u8]) -> anyhow::Result<()> {
    let decoded = machinery::codec::decode_yaml(text).map_err(|error| anyhow::anyhow!("{error}"))?;
    if let Some(twice) = decoded.duplicates.first() {
        bail!("{twice}");
    }
    let keys = match decoded.value {
        Value::Null => return Ok(()),
        Value::Object(keys) => keys,
        _ => bail!("the file must hold keys and values, such as `token: secret`"),
    };
    for (key, value) in keys {
        let values = texts(&value).with_context(|| key.clone())?;
        match key.strip_suffix('+') {
            Some(key) => {
                let setting = settings.entry(key.to_owned());
                let setting = setting.or_insert_with(|| Setting { file: file.to_owned(), values: Vec::new() });
                setting.file = file.to_owned();
                setting.values.extend(values);
            }
            // A key without a value is one that is not set, also where an earlier file did.
            None if value.is_null() => {
                settings.remove(&key);
            }
            None => {
                settings.insert(key, Setting { file: file.to_owned(), values });
            }
        }
    }
    Ok(())
}

fn texts(value: &Value) -> anyhow::Result<Vec<String>> {
    let text = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(_) | Value::Bool(_) => Ok(value.to_string()),
        _ => bail!("{value} is not a string, number, boolean, or a list of these"),
    };
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Array(items) => items.iter().map(text).collect(),
        one => Ok(vec![text(one)?]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(texts: &[&str]) -> anyhow::Result<Settings> {
        let file = |(number, text): (usize, &&str)| (format!("{number}.yaml").into(), text.as_bytes().to_vec());
        settings(&texts.iter().enumerate().map(file).collect::<Vec<_>>())
    }

    fn check(texts: &[&str], expected: &[(&str, &str, &[&str])]) {
        let read = read(texts).unwrap();
        let read: Vec<_> = read
            .iter()
            .map(|(key, one)| {
                (key.as_str(), one.file.to_str().unwrap(), one.values.iter().map(String::as_str).collect::<Vec<_>>())
            })
            .collect();
        let expected: Vec<_> = expected.iter().map(|(key, file, values)| (*key, *file, values.to_vec())).collect();
        assert_eq!(read, expected, "{texts:?}");
    }

    #[test]
    fn values_are_texts_numbers_booleans_and_lists() {
        check(
            &["a: x\nb: 8443\nc: true\nd: [x, 2, false]\ne: 0.5\n"],
            &[
                ("a", "0.yaml", &["x"]),
                ("b", "0.yaml", &["8443"]),
                ("c", "0.yaml", &["true"]),
                ("d", "0.yaml", &["x", "2", "false"]),
                ("e", "0.yaml", &["0.5"]),
            ],
        );
        check(&["", "# nothing\n", "{}"], &[]);
    }

    #[test]
    fn later_files_replace_and_a_plus_adds() {
        check(
            &["a: 1\nb: [x]\nd: 1\n", "a: 2\nb+: [v]\nc+: z\n", "b+: w\nd:\n"],
            &[("a", "1.yaml", &["2"]), ("b", "2.yaml", &["x", "v", "w"]), ("c", "1.yaml", &["z"])],
        );
    }

    #[test]
    fn what_is_no_setting_is_refused_with_its_file() {
        for (text, why) in [
            ("- a", "keys and values"),
            ("a: {b: c}", "is not a string, number, boolean"),
            ("a: 1\na: 2", "\"a\""),
            ("a: b: c", "yaml"),
        ] {
            let error = format!("{:#}", read(&["x: y", text]).unwrap_err());
            assert!(error.starts_with("1.yaml: ") && error.contains(why), "{error}");
        }
    }
}
