//! Questions that only a connection answers: what a server takes from a client that offers nothing good.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const TIMEOUT: Duration = Duration::from_secs(5);

/// What became of an offer of weak ciphers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offered {
    #[default]
    NotAsked,
    Refused,
    Taken,
}

/// RC4, triple DES and CBC, with and without forward secrecy.
const WEAK: [u16; 10] = [0x0005, 0x000a, 0x002f, 0x0035, 0x003c, 0x003d, 0xc009, 0xc00a, 0xc013, 0xc014];
const HANDSHAKE: u8 = 22;
const ALERT: u8 = 21;

/// Begins a handshake of TLS 1.2 in which there is nothing but weak ciphers to choose from.
pub async fn weak_ciphers(url: &http::Uri) -> Offered {
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let asked = async {
        let mut connection = TcpStream::connect((host.as_str(), url.port_u16().unwrap_or(443))).await.ok()?;
        connection.write_all(&client_hello(&WEAK)).await.ok()?;
        // Whoever hangs up without a word refuses as well.
        Some(connection.read_u8().await.unwrap_or(ALERT))
    };
    match tokio::time::timeout(TIMEOUT, asked).await {
        Ok(Some(HANDSHAKE)) => Offered::Taken,
        Ok(Some(_)) => Offered::Refused,
        Ok(None) | Err(_) => Offered::NotAsked,
    }
}

/// The first message of RFC 5246, with what RFC 8422 and RFC 5246 want to be said about curves and signatures.
fn client_hello(suites: &[u16]) -> Vec<u8> {
    let sized = |content: Vec<u8>| [(content.len() as u16).to_be_bytes().to_vec(), content].concat();
    let numbers = |numbers: &[u16]| -> Vec<u8> { numbers.iter().flat_map(|number| number.to_be_bytes()).collect() };
    let extension = |kind: u16, content: Vec<u8>| [kind.to_be_bytes().to_vec(), sized(content)].concat();
    let curves = extension(10, sized(numbers(&[0x001d, 0x0017])));
    let points = extension(11, vec![1, 0]);
    let signatures = extension(13, sized(numbers(&[0x0403, 0x0804, 0x0401])));
    let mut body = vec![3, 3];
    body.extend([0x5a; 32]);
    body.push(0);
    body.extend(sized(numbers(suites)));
    body.extend([1, 0]);
    body.extend(sized([curves, points, signatures].concat()));
    let mut message = vec![1, 0];
    message.extend(sized(body));
    let mut record = vec![HANDSHAKE, 3, 1];
    record.extend(sized(message));
    record
}

/// How a server answers a request that shows no proof of who asks. Nothing secret is sent, so anybody may answer.
pub async fn anonymous_code(url: &str, path: &str) -> Option<u16> {
    let mut config = kube::Config::new(url.parse().ok()?);
    config.accept_invalid_certs = true;
    // Otherwise the CAs of the machine are loaded, which may have none.
    config.root_cert = Some(Vec::new());
    config.connect_timeout = Some(TIMEOUT);
    let client = kube::Client::try_from(config).ok()?;
    let request = http::Request::get(path).body(kube::client::Body::empty()).ok()?;
    let answered = tokio::time::timeout(TIMEOUT, client.send(request)).await.ok()?;
    Some(answered.ok()?.status().as_u16())
}

/// `0100007F:1F90`, as `/proc/net/tcp` writes addresses: words of four bytes in the machine's order.
pub fn kernel_address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let words = (0..address.len()).step_by(8).map(|at| address.get(at..at + 8));
    let words: Option<Vec<u32>> = words.map(|word| u32::from_str_radix(word?, 16).ok()).collect();
    let ordered: Vec<u8> = words?.into_iter().flat_map(u32::to_ne_bytes).collect();
    let address = match ordered.len() {
        4 => IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(ordered).ok()?)),
        16 => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(ordered).ok()?)).to_canonical(),
        _ => return None,
    };
    Some(SocketAddr::new(address, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_kernel() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(kernel_address(text).map(|address| address.to_string()).as_deref(), expected, "{text}");
        };
        check("0100007F:1F90", Some("127.0.0.1:8080"));
        check("00000000:192B", Some("0.0.0.0:6443"));
        check("00000000000000000000000000000000:280A", Some("[::]:10250"));
        check("0000000000000000FFFF00000100007F:0050", Some("127.0.0.1:80"));
        check("01:1", None);
        check("zz", None);
    }

    #[tokio::test]
    async fn who_answers_with_a_handshake_takes_the_offer() {
        for (answer, expected) in [(HANDSHAKE, Offered::Taken), (ALERT, Offered::Refused)] {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
            let answering = async {
                let (mut connection, _) = listener.accept().await.unwrap();
                let mut head = [0; 5];
                connection.read_exact(&mut head).await.unwrap();
                assert_eq!(
                    (head[0], usize::from(head[3]) << 8 | usize::from(head[4])),
                    (HANDSHAKE, client_hello(&WEAK).len() - 5)
                );
                connection.write_all(&[answer]).await.unwrap();
            };
            assert_eq!(tokio::join!(weak_ciphers(&url), answering).0, expected);
        }
    }
}
