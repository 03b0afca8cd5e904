//! `$(NAME)` in values, commands and arguments. `$$` is a dollar, an unknown name stays as it is written.

/// Replaces what `lookup` knows.
pub fn expand(text: &str, lookup: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        rest = match after.chars().next() {
            Some('$') => {
                out.push('$');
                &after[1..]
            }
            Some('(') => match after.find(')') {
                Some(end) => {
                    let name = &after[1..end];
                    match lookup(name) {
                        Some(value) => out.push_str(&value),
                        None => out.push_str(&format!("$({name})")),
                    }
                    &after[end + 1..]
                }
                // A reference that is not closed is text; what follows is still looked at.
                None => {
                    out.push_str("$(");
                    &after[1..]
                }
            },
            // A dollar before anything else, or at the end, stands for itself.
            Some(_) | None => {
                out.push('$');
                after
            }
        };
    }
    out.push_str(rest);
    out
}

/// A command or its arguments, with the container's whole environment.
pub fn expand_all(words: &[String], variables: &[(String, String)]) -> Vec<String> {
    let lookup = |name: &str| variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    words.iter().map(|word| expand(word, lookup)).collect()
}
