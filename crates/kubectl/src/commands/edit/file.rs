//! The file that an editor gets: what stands above the object, and what is read of it afterwards.

use std::io::Write;

use serde_json::Value;

use crate::failure::{Failure, Result};

pub(super) const HEADER: &str = "# Please edit the object below. Lines beginning with a '#' will be ignored,\n\
# and an empty file will abort the edit. If an error occurs while saving this file will be\n\
# reopened with the relevant failures.\n#\n";

/// Why a file is opened again.
pub(crate) struct Reason {
    head: String,
    causes: Vec<String>,
}

impl Reason {
    pub(crate) fn of(head: String) -> Reason {
        Reason { head, causes: Vec::new() }
    }

    pub(crate) fn invalid(resource: &str, name: &str, causes: Vec<String>) -> Reason {
        Reason { head: format!("{resource} {name:?} was not valid"), causes }
    }
}

/// The comment at the top.
pub(crate) fn header(first: &str, reasons: &[Reason]) -> String {
    let commented = |text: &str| text.replace("\n#", "\n").replace('\n', "\n# ");
    let mut text = first.to_string();
    for reason in reasons {
        let colon = if reason.causes.is_empty() { "" } else { ":" };
        text += &format!("# {}{colon}\n", commented(&reason.head));
        reason.causes.iter().for_each(|cause| text += &format!("# * {}\n", commented(cause)));
        text += "#\n";
    }
    text
}

/// A file after it was edited. It goes away unless it is kept.
pub(crate) struct File {
    pub text: String,
    place: tempfile::NamedTempFile,
}

impl File {
    /// Leaves it where it is, and says where that is.
    pub(crate) fn keep(self) -> Result<String> {
        let (_, path) = self.place.keep().map_err(|error| Failure::from(error.error))?;
        Ok(path.display().to_string())
    }
}

pub(super) fn without_comments(text: &str) -> String {
    let comment = |line: &str| line.trim_start().starts_with('#') && !line.trim_start().starts_with("#!");
    text.split_inclusive('\n').filter(|line| !comment(line)).collect()
}

/// Do both say the same, whatever their comments and their notation?
pub(crate) fn same(one: &str, other: &str) -> bool {
    let value = |text: &str| machinery::codec::decode_yaml(text.as_bytes()).ok().map(|decoded| decoded.value);
    match (value(one), value(other)) {
        (Some(one), Some(other)) => one == other,
        (None, None) => without_comments(one) == without_comments(other),
        _ => false,
    }
}

/// Is it an object at all? What its kind knows of is for the server to say.
pub(crate) fn check(text: &str) -> Result<()> {
    let value = machinery::codec::decode_yaml(without_comments(text).as_bytes()).map_err(Failure::of)?.value;
    if !value.is_object() {
        return Err(Failure::message("invalid object to validate"));
    }
    let missing: Vec<String> = ["apiVersion", "kind"]
        .iter()
        .filter(|key| value[**key].as_str().is_none_or(str::is_empty))
        .map(|key| format!("{key} not set"))
        .collect();
    match &missing[..] {
        [] => Ok(()),
        [one] => Err(Failure::message(one)),
        many => Err(Failure::message(format!("[{}]", many.join(", ")))),
    }
}

/// An object through the editor once, for other commands.
pub(crate) fn edit_text(object: &Value) -> Result<Value> {
    let edited = in_editor(&format!("{HEADER}{}", crate::output::yaml::text(object)), "yaml")?;
    machinery::codec::decode_yaml(edited.text.as_bytes())
        .map(|decoded| decoded.value)
        .map_err(|error| Failure::message(format!("The edited file had a syntax error: {error}")))
}

pub(super) fn in_editor(text: &str, extension: &str) -> Result<File> {
    let mut file = tempfile::Builder::new().prefix("kubectl-edit-").suffix(&format!(".{extension}")).tempfile()?;
    file.write_all(text.as_bytes())?;
    let editor = ["KUBE_EDITOR", "EDITOR"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|editor| !editor.trim().is_empty()))
        .unwrap_or_else(|| "vi".into());
    // The editor may come with arguments, as in EDITOR="code --wait".
    let command = format!("{editor} {}", shell_quoted(&file.path().display().to_string()));
    let status = std::process::Command::new("sh")
        .args([
            "-c",
            &format!("command -v {} >/dev/null 2>&1 || exit 127; {command}", editor.split(' ').next().unwrap_or("vi")),
        ])
        .status()?;
    if !status.success() {
        let code = status.code().unwrap_or(1);
        return Err(Failure::message(match code {
            // What a shell says of a program that is not there.
            127 => format!("unable to launch the editor {editor:?}"),
            _ => format!("there was a problem with the editor {editor:?}"),
        }));
    }
    let text = std::fs::read_to_string(file.path())?;
    Ok(File { text, place: file })
}

fn shell_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_stand_above_the_object() {
        let reasons = [Reason::of("first\nsecond".into()), Reason::invalid("pods", "a", vec!["x: no".into()])];
        assert_eq!(header("#\n", &reasons), "#\n# first\n# second\n#\n# pods \"a\" was not valid:\n# * x: no\n#\n");
    }

    #[test]
    fn comments_and_notation_do_not_matter() {
        assert!(same("# one\na: b\n", "{\"a\": \"b\"}"));
        assert!(!same("a: b\n", "a: c\n"));
        let refused = |text: &str| check(text).unwrap_err().text();
        assert_eq!(refused("# nothing\n"), "invalid object to validate");
        assert_eq!(refused("a: b\n"), "[apiVersion not set, kind not set]");
        assert!(check("apiVersion: v1\nkind: Pod\n").is_ok());
    }
}
