//! Private and public keys as files have them, in the one form that all parts of knarr read: PKCS#8 and `PUBLIC KEY`.

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{KeyPair, PublicKeyData as _};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::{PemObject, SectionKind};

/// A private key in PKCS#8, whichever of the usual forms the text has: kubeadm and openssl write others.
pub fn pkcs8(pem: &str) -> anyhow::Result<String> {
    let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|error| anyhow::anyhow!("{error}"));
    let der = match key.context("no private key found")? {
        PrivateKeyDer::Pkcs8(key) => key.secret_pkcs8_der().to_vec(),
        PrivateKeyDer::Pkcs1(key) => wrapped(&RSA, key.secret_pkcs1_der()),
        PrivateKeyDer::Sec1(key) => {
            let key = key.secret_sec1_der();
            let holds = |curve: &&[u8]| key.windows(curve.len()).any(|window| window == *curve);
            let curve =
                [&P256[..], &P384[..]].into_iter().find(holds).context("the curve is neither P-256 nor P-384")?;
            wrapped(&element(0x30, &[&EC[..], curve].concat()), key)
        }
        _ => bail!("unknown key format"),
    };
    Ok(to_pem("PRIVATE KEY", &der))
}

/// Every key in the text that tokens can be checked with: public ones, and those of private ones.
pub fn public(pem: &str) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(pem.as_bytes()) {
        let (kind, der) = section.map_err(|error| anyhow::anyhow!("{error}"))?;
        match kind {
            SectionKind::PublicKey => found.push(to_pem("PUBLIC KEY", &der)),
            SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey => {
                let key = KeyPair::from_pem(&pkcs8(pem)?).context("load private key")?;
                found.push(to_pem("PUBLIC KEY", &key.subject_public_key_info()));
            }
            _ => {}
        }
    }
    if found.is_empty() {
        bail!("no key found");
    }
    Ok(found)
}

/// The names of the kinds of keys and curves, as DER.
const RSA: [u8; 15] = [0x30, 0x0d, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1, 5, 0];
const EC: [u8; 9] = [6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
const P256: [u8; 10] = [6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
const P384: [u8; 7] = [6, 5, 0x2b, 0x81, 4, 0, 0x22];

/// Version 0, the kind of key, and the key itself.
fn wrapped(kind: &[u8], key: &[u8]) -> Vec<u8> {
    element(0x30, &[&[2, 1, 0], kind, &element(4, key)].concat())
}

/// One element of DER: what it is, how long it is, what it holds.
fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match content.len() {
        length @ 0..=0x7f => out.push(length as u8),
        length => {
            let bytes: Vec<u8> = length.to_be_bytes().into_iter().skip_while(|byte| *byte == 0).collect();
            out.push(0x80 | bytes.len() as u8);
            out.extend(bytes);
        }
    }
    out.extend(content);
    out
}

fn to_pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> = (0..text.len()).step_by(64).map(|from| &text[from..text.len().min(from + 64)]).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    /// What openssl answers to that text.
    fn openssl(arguments: &str, input: &str) -> String {
        let mut child = Command::new("openssl")
            .args(arguments.split(' '))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("there is an openssl");
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    }

    #[test]
    fn keys_of_every_usual_form_are_read() {
        let plain = |key: String| (key.clone(), openssl("pkey -pubout", &key));
        let rsa = plain(openssl("genrsa -traditional 2048", ""));
        let rsa8 = plain(openssl("genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048", ""));
        let ec = plain(openssl("ecparam -genkey -name prime256v1", ""));
        let ec384 = plain(openssl("ecparam -genkey -name secp384r1 -noout", ""));
        let beginnings = ["RSA PRIVATE KEY", "PRIVATE KEY", "EC PARAMETERS", "EC PRIVATE KEY"];
        for ((key, expected), beginning) in [rsa, rsa8, ec, ec384].into_iter().zip(beginnings) {
            assert!(key.starts_with(&format!("-----BEGIN {beginning}-----")), "{key}");
            let normal = pkcs8(&key).unwrap();
            assert!(KeyPair::from_pem(&normal).is_ok(), "{beginning}");
            assert_eq!(openssl("pkey -pubout", &normal), expected, "{beginning}");
            for text in [&key, &expected] {
                assert_eq!(public(text).unwrap().concat(), expected, "{beginning}");
            }
        }
        assert!(pkcs8("nothing").is_err());
        assert!(public("nothing").is_err());
    }
}
