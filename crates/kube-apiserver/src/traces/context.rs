//! Which trace a request belongs to, and its place in it: the W3C's header `traceparent`.

/// A span's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    pub trace: [u8; 16],
    pub span: [u8; 8],
    /// Whether it is written down at all.
    pub sampled: bool,
}

impl Context {
    /// The first span of a trace; of a million of them, so many are written down.
    pub fn root(per_million: u32) -> Context {
        Context::of_trace(rand::random(), per_million)
    }

    /// Whether a trace is written down depends on its id alone, so that everyone who is asked decides alike.
    fn of_trace(trace: [u8; 16], per_million: u32) -> Context {
        let [.., a, b, c, d, e, f, g, h] = trace;
        let place = u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 1;
        let bound = u128::from(per_million) * (1_u128 << 63) / 1_000_000;
        Context { trace, span: rand::random(), sampled: u128::from(place) < bound }
    }

    pub fn child(&self) -> Context {
        Context { span: rand::random(), ..self.clone() }
    }

    /// `00-<trace>-<span>-<flags>`; later versions may have more behind it.
    pub fn parse(text: &str) -> Option<Context> {
        let mut parts = text.trim().split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let [version] = bytes(version)?;
        if version == 0xff || (version == 0 && parts.next().is_some()) {
            return None;
        }
        let (trace, span, [flags]): ([u8; 16], [u8; 8], [u8; 1]) = (bytes(trace)?, bytes(span)?, bytes(flags)?);
        let is_real = trace != [0; 16] && span != [0; 8];
        is_real.then_some(Context { trace, span, sampled: flags & 1 == 1 })
    }

    pub fn written(&self) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        format!("00-{}-{}-0{}", hex(&self.trace), hex(&self.span), u8::from(self.sampled))
    }
}

/// Lower-case digits, as the standard wants them.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let is_digit = |sign: char| sign.is_ascii_digit() || ('a'..='f').contains(&sign);
    if text.len() != N * 2 || !text.chars().all(is_digit) {
        return None;
    }
    let mut bytes = [0; N];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[index * 2..index * 2 + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_and_written() {
        let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let context = Context::parse(text).unwrap();
        assert!(context.sampled);
        assert_eq!(context.written(), text);
        let child = context.child();
        assert_eq!(child.trace, context.trace);
        assert_ne!(child.span, context.span);
        let unsampled = text.replace("-01", "-00");
        assert!(!Context::parse(&unsampled).unwrap().sampled);
        assert!(Context::parse(&format!("cc{}-more", &text[2..])).is_some());
        for wrong in [
            "",
            "00",
            &text.to_uppercase(),
            &format!("{text}-more"),
            &format!("ff{}", &text[2..]),
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319é-b7ad6b716920333-01",
        ] {
            assert_eq!(Context::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn so_many_of_a_million_are_written_down() {
        let sampled = |last: [u8; 8], per_million| {
            let mut trace = [1; 16];
            trace[8..].copy_from_slice(&last);
            Context::of_trace(trace, per_million).sampled
        };
        assert!(!sampled([0; 8], 0) && sampled([0xff; 8], 1_000_000));
        assert!(sampled([0x7f; 8], 500_000) && !sampled([0x80, 0, 0, 0, 0, 0, 0, 0], 500_000));
        assert!(sampled([0; 8], 1));
    }
}
