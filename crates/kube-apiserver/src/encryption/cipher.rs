//! The ciphers of providers, byte for byte as upstream stores what they make.

use aes::cipher::block_padding::NoPadding;
use aes::cipher::generic_array::GenericArray;
use aes::cipher::{BlockDecryptMut, BlockEncryptMut, KeyIvInit};
use aes::{Aes128, Aes192, Aes256};
use aes_gcm::aead::consts::U12;
use aes_gcm::{AesGcm, KeyInit};
use crypto_secretbox::XSalsa20Poly1305;
use crypto_secretbox::aead::Aead;
use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf;
use ring::rand::{SecureRandom, SystemRandom};

const BLOCK: usize = 16;
const BOX_NONCE: usize = 24;
const BOX_OVERHEAD: usize = 16;
/// Of a seed, of the text that a key is derived with, and of the derived key.
pub const SEED_BYTES: usize = 32;

/// In upstream's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CipherError {
    #[error("the stored data was shorter than the required size")]
    TooShort,
    #[error("the stored data is not a multiple of the block size")]
    NotBlocks,
    #[error("invalid PKCS7 data (empty or not padded)")]
    NotPadded,
    #[error("invalid padding on input")]
    WrongPadding,
    #[error("cipher: message authentication failed")]
    Forged,
    /// What upstream says of every value that its secretbox cannot open.
    #[error("output array was not large enough for encryption")]
    ForgedBox,
    #[error("invalid seed length {0} used for key generation")]
    SeedLength(usize),
    #[error("crypto/aes: invalid key size {0}")]
    KeyLength(usize),
    #[error("unable to read sufficient random bytes")]
    NoRandom,
}

/// One key of a provider.
pub enum Cipher {
    Cbc(Cbc),
    Gcm(Gcm),
    Secretbox(Box<XSalsa20Poly1305>),
}

/// Keys are never written anywhere, so there is nothing to show of one but its kind.
impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Cipher::Cbc(_) => "Cbc(..)",
            Cipher::Gcm(_) => "Gcm(..)",
            Cipher::Secretbox(_) => "Secretbox(..)",
        })
    }
}

impl Cipher {
    pub fn cbc(key: &[u8]) -> Result<Cipher, CipherError> {
        Ok(Cipher::Cbc(Cbc::new(key)?))
    }

    pub fn gcm(key: &[u8]) -> Result<Cipher, CipherError> {
        Ok(Cipher::Gcm(Gcm::new(key)?))
    }

    pub fn secretbox(key: &[u8]) -> Result<Cipher, CipherError> {
        let key = XSalsa20Poly1305::new_from_slice(key).map_err(|_| CipherError::KeyLength(key.len()))?;
        Ok(Cipher::Secretbox(Box::new(key)))
    }

    /// `place` is the key of the value in the store: what was encrypted for one place is not accepted in another.
    pub fn open(&self, data: &[u8], place: &[u8]) -> Result<Vec<u8>, CipherError> {
        match self {
            Cipher::Cbc(cbc) => cbc.open(data),
            Cipher::Gcm(gcm) => gcm.open(data, place),
            Cipher::Secretbox(sealed) => {
                if data.len() < BOX_NONCE + BOX_OVERHEAD {
                    return Err(CipherError::TooShort);
                }
                let (nonce, data) = data.split_at(BOX_NONCE);
                sealed.decrypt(GenericArray::from_slice(nonce), data).map_err(|_| CipherError::ForgedBox)
            }
        }
    }

    pub fn seal(&self, text: &[u8], place: &[u8]) -> Result<Vec<u8>, CipherError> {
        match self {
            Cipher::Cbc(cbc) => cbc.seal(text, random()?),
            Cipher::Gcm(gcm) => gcm.seal(text, place, random()?),
            Cipher::Secretbox(sealed) => {
                let nonce: [u8; BOX_NONCE] = random()?;
                let data = sealed.encrypt(GenericArray::from_slice(&nonce), text);
                Ok([&nonce[..], &data.map_err(|_| CipherError::ForgedBox)?].concat())
            }
        }
    }
}

/// AES in CBC mode, padded as PKCS#7 has it. It does not notice changes of what it encrypted.
pub enum Cbc {
    Aes128([u8; 16]),
    Aes192([u8; 24]),
    Aes256([u8; 32]),
}

impl Cbc {
    fn new(key: &[u8]) -> Result<Cbc, CipherError> {
        let wrong = |_| CipherError::KeyLength(key.len());
        Ok(match key.len() {
            16 => Cbc::Aes128(key.try_into().map_err(wrong)?),
            24 => Cbc::Aes192(key.try_into().map_err(wrong)?),
            32 => Cbc::Aes256(key.try_into().map_err(wrong)?),
            length => return Err(CipherError::KeyLength(length)),
        })
    }

    fn open(&self, data: &[u8]) -> Result<Vec<u8>, CipherError> {
        let Some((iv, data)) = data.split_at_checked(BLOCK) else { return Err(CipherError::TooShort) };
        if data.len() % BLOCK != 0 {
            return Err(CipherError::NotBlocks);
        }
        let mut text = data.to_vec();
        let opened = match self {
            Cbc::Aes128(key) => opened::<Aes128>(key, iv, &mut text),
            Cbc::Aes192(key) => opened::<Aes192>(key, iv, &mut text),
            Cbc::Aes256(key) => opened::<Aes256>(key, iv, &mut text),
        };
        opened?;
        let padding = text.last().copied().ok_or(CipherError::NotPadded)?;
        let count = usize::from(padding);
        if count == 0 || count > text.len() {
            return Err(CipherError::NotPadded);
        }
        let length = text.len() - count;
        if text[length..].iter().any(|byte| *byte != padding) {
            return Err(CipherError::WrongPadding);
        }
        text.truncate(length);
        Ok(text)
    }

    fn seal(&self, text: &[u8], iv: [u8; BLOCK]) -> Result<Vec<u8>, CipherError> {
        let padding = BLOCK - text.len() % BLOCK;
        let mut data = Vec::with_capacity(BLOCK + text.len() + padding);
        data.extend_from_slice(&iv);
        data.extend_from_slice(text);
        data.extend(std::iter::repeat_n(padding as u8, padding));
        match self {
            Cbc::Aes128(key) => sealed::<Aes128>(key, &iv, &mut data[BLOCK..])?,
            Cbc::Aes192(key) => sealed::<Aes192>(key, &iv, &mut data[BLOCK..])?,
            Cbc::Aes256(key) => sealed::<Aes256>(key, &iv, &mut data[BLOCK..])?,
        }
        Ok(data)
    }
}

fn opened<A>(key: &[u8], iv: &[u8], data: &mut [u8]) -> Result<(), CipherError>
where
    A: aes::cipher::BlockDecryptMut + aes::cipher::BlockCipher + KeyInit,
{
    let mode = cbc::Decryptor::<A>::new_from_slices(key, iv).map_err(|_| CipherError::KeyLength(key.len()))?;
    mode.decrypt_padded_mut::<NoPadding>(data).map(drop).map_err(|_| CipherError::NotBlocks)
}

fn sealed<A>(key: &[u8], iv: &[u8], data: &mut [u8]) -> Result<(), CipherError>
where
    A: aes::cipher::BlockEncryptMut + aes::cipher::BlockCipher + KeyInit,
{
    let mode = cbc::Encryptor::<A>::new_from_slices(key, iv).map_err(|_| CipherError::KeyLength(key.len()))?;
    let length = data.len();
    mode.encrypt_padded_mut::<NoPadding>(data, length).map(drop).map_err(|_| CipherError::NotBlocks)
}

/// AES in GCM mode with a random nonce in front.
pub enum Gcm {
    Ring(Box<LessSafeKey>),
    /// `ring` has none of this length.
    Aes192(Box<AesGcm<Aes192, U12>>),
}

impl Gcm {
    pub fn new(key: &[u8]) -> Result<Gcm, CipherError> {
        let wrong = || CipherError::KeyLength(key.len());
        let algorithm = match key.len() {
            16 => &AES_128_GCM,
            24 => {
                let cipher = AesGcm::new_from_slice(key).map_err(|_| wrong())?;
                return Ok(Gcm::Aes192(Box::new(cipher)));
            }
            32 => &AES_256_GCM,
            _ => return Err(wrong()),
        };
        let key = UnboundKey::new(algorithm, key).map_err(|_| wrong())?;
        Ok(Gcm::Ring(Box::new(LessSafeKey::new(key))))
    }

    pub fn open(&self, data: &[u8], place: &[u8]) -> Result<Vec<u8>, CipherError> {
        let Some((nonce, data)) = data.split_first_chunk::<NONCE_LEN>() else { return Err(CipherError::TooShort) };
        match self {
            Gcm::Ring(key) => {
                let mut text = data.to_vec();
                let nonce = Nonce::assume_unique_for_key(*nonce);
                let opened = key.open_in_place(nonce, Aad::from(place), &mut text);
                let length = opened.map_err(|_| CipherError::Forged)?.len();
                text.truncate(length);
                Ok(text)
            }
            Gcm::Aes192(key) => {
                use aes_gcm::aead::Aead;
                let payload = aes_gcm::aead::Payload { msg: data, aad: place };
                key.decrypt(GenericArray::from_slice(nonce), payload).map_err(|_| CipherError::Forged)
            }
        }
    }

    pub fn seal(&self, text: &[u8], place: &[u8], nonce: [u8; NONCE_LEN]) -> Result<Vec<u8>, CipherError> {
        let mut data = text.to_vec();
        match self {
            Gcm::Ring(key) => {
                let nonce = Nonce::assume_unique_for_key(nonce);
                let sealed = key.seal_in_place_append_tag(nonce, Aad::from(place), &mut data);
                sealed.map_err(|_| CipherError::Forged)?;
            }
            Gcm::Aes192(key) => {
                use aes_gcm::aead::Aead;
                let payload = aes_gcm::aead::Payload { msg: text, aad: place };
                data = key.encrypt(GenericArray::from_slice(&nonce), payload).map_err(|_| CipherError::Forged)?;
            }
        }
        Ok([&nonce[..], &data].concat())
    }
}

/// What keys are derived from: each value has one of its own, made of the seed and of random bytes that stand in front of it.
pub struct Seed(hkdf::Prk);

impl Seed {
    pub fn new(seed: &[u8]) -> Result<Seed, CipherError> {
        if seed.len() < SEED_BYTES {
            return Err(CipherError::SeedLength(seed.len()));
        }
        Ok(Seed(hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, seed)))
    }

    pub fn open(&self, data: &[u8], place: &[u8]) -> Result<Vec<u8>, CipherError> {
        let Some((info, data)) = data.split_first_chunk::<SEED_BYTES>() else { return Err(CipherError::TooShort) };
        self.derived(info)?.open(data, place)
    }

    pub fn seal(&self, text: &[u8], place: &[u8]) -> Result<Vec<u8>, CipherError> {
        self.seal_with(text, place, random()?, random()?)
    }

    fn seal_with(
        &self,
        text: &[u8],
        place: &[u8],
        info: [u8; SEED_BYTES],
        nonce: [u8; NONCE_LEN],
    ) -> Result<Vec<u8>, CipherError> {
        let data = self.derived(&info)?.seal(text, place, nonce)?;
        Ok([&info[..], &data].concat())
    }

    fn derived(&self, info: &[u8; SEED_BYTES]) -> Result<Gcm, CipherError> {
        let info = [&info[..]];
        let expanded = self.0.expand(&info, &AES_256_GCM).map_err(|_| CipherError::SeedLength(SEED_BYTES))?;
        Ok(Gcm::Ring(Box::new(LessSafeKey::new(UnboundKey::from(expanded)))))
    }
}

/// Random bytes of the system.
pub fn random<const COUNT: usize>() -> Result<[u8; COUNT], CipherError> {
    let mut bytes = [0; COUNT];
    SystemRandom::new().fill(&mut bytes).map_err(|_| CipherError::NoRandom)?;
    Ok(bytes)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub const TEXT: &[u8] = br#"{"kind":"Secret","apiVersion":"v1","data":{"a":"Yg=="}}"#;
    pub const PLACE: &[u8] = b"/registry/secrets/default/one";

    pub fn bytes(first: u8, count: usize) -> Vec<u8> {
        (0..count).map(|index| first.wrapping_add(index as u8)).collect()
    }

    pub fn unhex(text: &str) -> Vec<u8> {
        let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal");
        (0..text.len()).step_by(2).map(digit).collect()
    }

    // Made by other implementations: OpenSSL through Python's `cryptography` 48, and libsodium through PyNaCl. Keys are the bytes
    // from 1 on, initialization vectors those from 100 on, nonces of GCM those from 200 on and of secretbox those from 50 on.
    const CBC: [(usize, &str); 3] = [
        (
            16,
            "6465666768696a6b6c6d6e6f70717273a8760d9bc5414684e8e1bb639d65cf5dedde10e00c673bce23ea552a99f89c11c3f2e73d8b78f3939271330cc443f489706af694287502f1c7e46cc08c8bc1db",
        ),
        (
            24,
            "6465666768696a6b6c6d6e6f70717273e2929e20c6fee0799c9ba586255fa30044be547dbeeec11d21db31f7ce153c090b56c0e754838614624cf152c707ce9d6bcf6525de287a9a3d465219d3e63966",
        ),
        (
            32,
            "6465666768696a6b6c6d6e6f7071727362b564b3b39fb95923c6e9bcb1dac4521bf4662d75ce32da7973e2032d5582bd235be3a3230c579e79d81052670390e749a8c0e7fd3c8e1422e15530c24d4b75",
        ),
    ];
    const GCM: [(usize, &str); 3] = [
        (
            16,
            "c8c9cacbcccdcecfd0d1d2d37a54dc522681f5a355a69ac2f52cd040792ec72d1a390ad7106b3c28119296f32bcd1c83f6b8017f4570a705d774c2f384dc4ad73f856828accd3599875795e0b1de507608a167",
        ),
        (
            24,
            "c8c9cacbcccdcecfd0d1d2d3978c6500c29149406a7bbc6b2fd4ea9fb8da2e551aff2e077762765321deefde325045433e262e2a4221c142b10d650ffd2432d2e08478bf121776f1db51c79008463ae188bd4e",
        ),
        (
            32,
            "c8c9cacbcccdcecfd0d1d2d3e3fffdb6c8e3afa2f6701a7419cc0800c3341e32694f2000aaf6f69254178c3046a76c121d1f688206f84da3aa4357bc071f3196e54e5cb633a98f5fa35ba2fb61fc46fd745d09",
        ),
    ];
    const SECRETBOX: &str = "32333435363738393a3b3c3d3e3f40414243444546474849d1f114f44423091f29b1423e96b03624e7169dd727edc53fc322868769381953cfaa4145894f9f2f6273a85213d950845f30b51ab959042a4222da6b9e796b73625a12c83f80b1";
    const SEEDED: &str = "464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f6061626364655a5b5c5d5e5f60616263646503cc701a4ef125331015ed5415e932b906adeef86cedb26d1211f0b53dba6e3756d62ff8c713b8dde1ee093eec370c0aa7d963b3d2938f18b465b9bfedc937917080e49b622425";

    #[test]
    fn cbc_reads_and_writes_what_others_do() {
        for (length, expected) in CBC {
            let cbc = Cbc::new(&bytes(1, length)).unwrap();
            let iv = bytes(100, 16).try_into().unwrap();
            assert_eq!(cbc.seal(TEXT, iv).unwrap(), unhex(expected));
            assert_eq!(cbc.open(&unhex(expected)).unwrap(), TEXT);
        }
        let cbc = Cipher::cbc(&bytes(1, 32)).unwrap();
        assert_ne!(cbc.seal(TEXT, PLACE).unwrap(), cbc.seal(TEXT, PLACE).unwrap());
        for length in 0..40 {
            let text = bytes(9, length);
            assert_eq!(cbc.open(&cbc.seal(&text, PLACE).unwrap(), PLACE).unwrap(), text);
        }
        assert_eq!(cbc.open(&[0; 15], PLACE), Err(CipherError::TooShort));
        assert_eq!(cbc.open(&[0; 16], PLACE), Err(CipherError::NotPadded));
        assert_eq!(cbc.open(&[0; 33], PLACE), Err(CipherError::NotBlocks));
        let other = Cipher::cbc(&bytes(2, 32)).unwrap();
        assert!(other.open(&unhex(CBC[2].1), PLACE).is_err());
        assert_eq!(Cipher::cbc(&[0; 17]).unwrap_err().to_string(), "crypto/aes: invalid key size 17");
    }

    #[test]
    fn gcm_reads_and_writes_what_others_do_and_only_in_its_place() {
        for (length, expected) in GCM {
            let gcm = Gcm::new(&bytes(1, length)).unwrap();
            let nonce = bytes(200, 12).try_into().unwrap();
            assert_eq!(gcm.seal(TEXT, PLACE, nonce).unwrap(), unhex(expected), "{length}");
            assert_eq!(gcm.open(&unhex(expected), PLACE).unwrap(), TEXT);
            assert_eq!(gcm.open(&unhex(expected), b"/registry/secrets/default/two"), Err(CipherError::Forged));
            let mut changed = unhex(expected);
            changed[20] ^= 1;
            assert_eq!(gcm.open(&changed, PLACE), Err(CipherError::Forged));
            assert_eq!(gcm.open(&[0; 11], PLACE), Err(CipherError::TooShort));
        }
    }

    #[test]
    fn secretbox_reads_and_writes_what_others_do() {
        let sealed = Cipher::secretbox(&bytes(1, 32)).unwrap();
        assert_eq!(sealed.open(&unhex(SECRETBOX), PLACE).unwrap(), TEXT);
        // It has no place, as upstream.
        let data = sealed.seal(TEXT, PLACE).unwrap();
        assert_eq!(data.len(), unhex(SECRETBOX).len());
        assert_eq!(sealed.open(&data, b"elsewhere").unwrap(), TEXT);
        let Cipher::Secretbox(inner) = &sealed else { panic!("a box") };
        let made = inner.encrypt(GenericArray::from_slice(&bytes(50, 24)), TEXT).unwrap();
        assert_eq!([bytes(50, 24), made].concat(), unhex(SECRETBOX));
        let mut changed = unhex(SECRETBOX);
        changed[30] ^= 1;
        assert_eq!(sealed.open(&changed, PLACE), Err(CipherError::ForgedBox));
        assert_eq!(sealed.open(&changed[..39], PLACE), Err(CipherError::TooShort));
        assert!(Cipher::secretbox(&[0; 31]).is_err());
    }

    #[test]
    fn derived_keys_are_those_that_others_derive() {
        let seed = Seed::new(&bytes(7, 32)).unwrap();
        let (info, nonce) = (bytes(70, 32).try_into().unwrap(), bytes(90, 12).try_into().unwrap());
        assert_eq!(seed.seal_with(TEXT, PLACE, info, nonce).unwrap(), unhex(SEEDED));
        assert_eq!(seed.open(&unhex(SEEDED), PLACE).unwrap(), TEXT);
        assert_eq!(seed.open(&unhex(SEEDED), b"elsewhere"), Err(CipherError::Forged));
        assert_eq!(seed.open(&seed.seal(TEXT, PLACE).unwrap(), PLACE).unwrap(), TEXT);
        assert_eq!(seed.open(&[0; 31], PLACE), Err(CipherError::TooShort));
        assert_eq!(Seed::new(&[0; 31]).err(), Some(CipherError::SeedLength(31)));
    }

    #[test]
    fn keys_are_not_shown() {
        let all = [Cipher::cbc(&[65; 32]), Cipher::gcm(&[65; 32]), Cipher::secretbox(&[65; 32])];
        let shown = format!("{all:?}");
        assert!(!shown.contains("65") && !shown.contains('A'), "{shown}");
    }
}
