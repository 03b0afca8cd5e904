//! Why somebody may not do something, as the sentence that upstream answers with. Those who refuse have dozens of such sentences,
//! each said once, and nobody decides by them: they are carried, not compared.

use std::borrow::Cow;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(Cow<'static, str>);

impl From<&'static str> for Refusal {
    fn from(sentence: &'static str) -> Refusal {
        Refusal(Cow::Borrowed(sentence))
    }
}

impl From<String> for Refusal {
    fn from(sentence: String) -> Refusal {
        Refusal(Cow::Owned(sentence))
    }
}

/// As the machinery of errors shows several: one stands alone, more stand in brackets.
pub fn together(sentences: &[impl ToString]) -> String {
    let sentences: Vec<String> = sentences.iter().map(ToString::to_string).collect();
    match sentences.as_slice() {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}
