//! Reads PEM blocks as far as a check needs: the label, and that the bytes inside are one whole DER sequence.
//! Signatures are the business of whoever signs.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

#[derive(Debug, PartialEq, thiserror::Error)]
pub enum PemError {
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    NotARequest,
    #[error("only CERTIFICATE PEM blocks are allowed, found {0:?}")]
    NotACertificate(String),
    #[error("must contain at least one CERTIFICATE PEM block")]
    NoCertificate,
    #[error("asn1: structure error: sequence truncated or malformed")]
    Der,
}

pub(super) struct Block {
    pub(super) label: String,
    pub(super) der: Vec<u8>,
    /// Whether lines such as `Proc-Type: 4` stand before the bytes.
    pub(super) headers: bool,
}

/// The first block must be a certificate request.
pub(super) fn request(bytes: &[u8]) -> Result<(), PemError> {
    let blocks = blocks(bytes);
    let first = blocks.first().filter(|block| block.label == "CERTIFICATE REQUEST").ok_or(PemError::NotARequest)?;
    whole_sequence(&first.der)
}

/// Every block must be a certificate, and there must be one.
pub(super) fn certificates(bytes: &[u8]) -> Result<(), PemError> {
    let blocks = blocks(bytes);
    if blocks.is_empty() {
        return Err(PemError::NoCertificate);
    }
    for block in &blocks {
        if block.label != "CERTIFICATE" {
            return Err(PemError::NotACertificate(block.label.clone()));
        }
        whole_sequence(&block.der)?;
    }
    Ok(())
}

/// Whole blocks; what stands between them is comment.
pub(super) fn blocks(bytes: &[u8]) -> Vec<Block> {
    let text = String::from_utf8_lossy(bytes);
    let mut found = Vec::new();
    let mut open: Option<(String, String, bool)> = None;
    for line in text.lines().map(str::trim) {
        let label = |start: &str| line.strip_prefix(start).and_then(|rest| rest.strip_suffix("-----"));
        if let Some(label) = label("-----BEGIN ") {
            open = Some((label.to_string(), String::new(), false));
        } else if let Some(end) = label("-----END ") {
            if let Some((label, body, headers)) = open.take().filter(|(label, ..)| label == end)
                && let Ok(der) = STANDARD.decode(&body)
            {
                found.push(Block { label, der, headers });
            }
        } else if let Some((_, body, headers)) = &mut open {
            if line.contains(':') {
                *headers = true;
            } else {
                body.push_str(line);
            }
        }
    }
    found
}

/// One SEQUENCE whose length is exactly what follows.
fn whole_sequence(der: &[u8]) -> Result<(), PemError> {
    let [0x30, first, rest @ ..] = der else { return Err(PemError::Der) };
    let (length, body) = match first & 0x80 {
        0 => (usize::from(*first), rest),
        _ => {
            let count = usize::from(first & 0x7f);
            if count == 0 || count > 4 || rest.len() < count {
                return Err(PemError::Der);
            }
            let (digits, body) = rest.split_at(count);
            (digits.iter().fold(0usize, |length, digit| length << 8 | usize::from(*digit)), body)
        }
    };
    if length == body.len() { Ok(()) } else { Err(PemError::Der) }
}
