//! Why a command did not succeed, and the sentences upstream has for it.

use serde_json::Value;

#[derive(Debug)]
pub(crate) enum Failure {
    /// The server's refusal. The text stands before its message: `error when creating "x.yaml": `.
    Status {
        status: Value,
        prefix: String,
    },
    /// Printed behind `error: `.
    Message(String),
    /// The same, with a hint at the command's help.
    Usage(String),
    /// Printed as it is.
    Plain(String),
    /// Everything has been said; only the exit code is left.
    Exit(i32),
    Many(Vec<Failure>),
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn status(status: Value) -> Failure {
        Failure::Status { status, prefix: String::new() }
    }

    pub(crate) fn message(text: impl Into<String>) -> Failure {
        Failure::Message(text.into())
    }

    /// An error of another module, in its own words.
    pub(crate) fn of(error: impl std::fmt::Display) -> Failure {
        Failure::Message(error.to_string())
    }

    /// `error when creating "x.yaml": ` before what the server said.
    pub(crate) fn during(self, doing: &str, source: &str) -> Failure {
        let prefix = format!("error when {doing} {source:?}: ");
        match self {
            Failure::Status { status, .. } => Failure::Status { status, prefix },
            Failure::Message(text) => Failure::Message(format!("{prefix}{text}")),
            other => other,
        }
    }

    pub(crate) fn reason(&self) -> &str {
        match self {
            Failure::Status { status, .. } => status["reason"].as_str().unwrap_or_default(),
            _ => "",
        }
    }

    /// `field: what is wrong with it`, for each field that the server refused.
    pub(crate) fn causes(&self) -> Vec<String> {
        let Failure::Status { status, .. } = self else { return Vec::new() };
        let causes = status["details"]["causes"].as_array().map(Vec::as_slice).unwrap_or_default();
        let text = |cause: &Value, key: &str| cause[key].as_str().unwrap_or_default().to_string();
        causes.iter().map(|cause| format!("{}: {}", text(cause, "field"), text(cause, "message"))).collect()
    }

    /// Whether the server gives that reason among the causes.
    pub(crate) fn has_cause(&self, reason: &str) -> bool {
        let Failure::Status { status, .. } = self else { return false };
        status["details"]["causes"].as_array().into_iter().flatten().any(|cause| cause["reason"] == reason)
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.reason() == "NotFound"
    }

    pub(crate) fn code(&self) -> i64 {
        match self {
            Failure::Status { status, .. } => status["code"].as_i64().unwrap_or_default(),
            _ => 0,
        }
    }

    /// The message alone, as it is quoted inside other sentences.
    pub(crate) fn text(&self) -> String {
        match self {
            Failure::Status { status, prefix } => format!("{prefix}{}", status["message"].as_str().unwrap_or_default()),
            Failure::Message(text) | Failure::Usage(text) | Failure::Plain(text) => text.clone(),
            Failure::Exit(_) => String::new(),
            Failure::Many(failures) => match &failures[..] {
                [one] => one.text(),
                many => format!("[{}]", many.iter().map(Failure::text).collect::<Vec<_>>().join(", ")),
            },
        }
    }

    /// What is printed on standard error, and the exit code.
    pub(crate) fn report(&self, command: &str) -> (String, i32) {
        match self {
            Failure::Exit(code) => (String::new(), *code),
            Failure::Plain(text) => (format!("{text}\n"), 1),
            Failure::Message(text) => (format!("{}\n", with_error(text)), 1),
            Failure::Usage(text) => (format!("{}\nSee '{command} -h' for help and examples\n", with_error(text)), 1),
            Failure::Status { status, prefix } => (format!("{}\n", status_sentence(status, prefix)), 1),
            Failure::Many(failures) => {
                // Among several, upstream leaves out the `error: ` that a single one would have.
                let text = |failure: &Failure| match failure {
                    Failure::Message(text) => format!("{text}\n"),
                    other => other.report(command).0,
                };
                let texts: String = failures.iter().map(text).collect();
                (texts, failures.iter().map(|failure| failure.report(command).1).max().unwrap_or(1))
            }
        }
    }
}

/// One failure as it is, several as one.
pub(crate) fn all(mut failures: Vec<Failure>) -> Result<()> {
    match failures.len() {
        0 => Ok(()),
        1 => Err(failures.remove(0)),
        _ => Err(Failure::Many(failures)),
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.text())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::Message(go_io_error(&error))
    }
}

/// What Go says of an error of the system, without the number Rust adds.
pub(crate) fn go_io_error(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "no such file or directory".into(),
        std::io::ErrorKind::PermissionDenied => "permission denied".into(),
        std::io::ErrorKind::IsADirectory => "is a directory".into(),
        std::io::ErrorKind::ConnectionRefused => "connection refused".into(),
        std::io::ErrorKind::AddrInUse => "address already in use".into(),
        _ => {
            let text = error.to_string();
            text.split(" (os error").next().unwrap_or(&text).to_lowercase()
        }
    }
}

fn with_error(text: &str) -> String {
    if text.starts_with("error: ") { text.to_string() } else { format!("error: {text}") }
}

fn status_sentence(status: &Value, prefix: &str) -> String {
    let message = status["message"].as_str().unwrap_or_default();
    match status["reason"].as_str().unwrap_or_default() {
        "Unauthorized" => {
            let message = if prefix.is_empty() { message.to_string() } else { format!("{prefix}{message}") };
            if message == "Unauthorized" || message.is_empty() {
                return "error: You must be logged in to the server (Unauthorized)".into();
            }
            format!("error: You must be logged in to the server ({message})")
        }
        "Invalid" => invalid(status, &format!("{prefix}{message}")),
        // A conflict of server-side apply is told by the command itself.
        "" if status["message"].is_null() => "Error from server: unknown".into(),
        "" => format!("Error from server: {prefix}{message}"),
        reason => format!("Error from server ({reason}): {prefix}{message}"),
    }
}

fn invalid(status: &Value, message: &str) -> String {
    let details = &status["details"];
    let (kind, name) = (details["kind"].as_str().unwrap_or(""), details["name"].as_str().unwrap_or(""));
    let causes = details["causes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut sentence = "The request is invalid".to_string();
    if !kind.is_empty() || !name.is_empty() {
        sentence = format!("The {kind} {name:?} is invalid");
    } else if !message.is_empty() && causes.is_empty() {
        sentence = format!("{sentence}: {message}");
    }
    let mut lines: Vec<String> = Vec::new();
    for line in Failure::status(status.clone()).causes() {
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    match &lines[..] {
        [] => sentence,
        [one] => format!("{sentence}: {one}"),
        many => {
            let bullets: String = many.iter().map(|line| format!("\n* {line}")).collect();
            format!("{sentence}: {bullets}")
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn refusals_read_as_upstreams() {
        let check = |failure: Failure, text: &str| assert_eq!(failure.report("kubectl x").0, format!("{text}\n"));
        let missing = json!({"reason": "NotFound", "code": 404, "message": "pods \"a\" not found"});
        check(Failure::status(missing.clone()), "Error from server (NotFound): pods \"a\" not found");
        check(
            Failure::status(missing).during("creating", "STDIN"),
            "Error from server (NotFound): error when creating \"STDIN\": pods \"a\" not found",
        );
        check(Failure::message("no"), "error: no");
        check(Failure::Usage("no".into()), "error: no\nSee 'kubectl x -h' for help and examples");
        let unauthorized = json!({"reason": "Unauthorized", "message": "Unauthorized"});
        check(Failure::status(unauthorized), "error: You must be logged in to the server (Unauthorized)");
        let cause = |field: &str| json!({"field": field, "message": "Required value"});
        let invalid = |causes: Vec<Value>| json!({"reason": "Invalid", "message": "m", "details": {"kind": "Pod", "name": "a", "causes": causes}});
        check(Failure::status(invalid(vec![cause("x")])), "The Pod \"a\" is invalid: x: Required value");
        check(
            Failure::status(invalid(vec![cause("x"), cause("y"), cause("x")])),
            "The Pod \"a\" is invalid: \n* x: Required value\n* y: Required value",
        );
    }
}
