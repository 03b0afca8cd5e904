//! Packets as an attacker would write them, and the networks of pods to send them from.

#![allow(dead_code, reason = "every test program uses its own part of this")]

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::Machine;

/// The network of the pod with an address, on the machine of its node.
pub fn pod_network(machine: &Machine, address: &str) -> PathBuf {
    let script = format!(
        "for process in /proc/[0-9]*; do
           if nsenter --net=$process/ns/net ip -4 -o address 2>/dev/null | grep -q ' {address}/'; then echo $process; exit; fi
         done; exit 1"
    );
    let process = machine.shell(&script).unwrap();
    machine.path(format!("{}/ns/net", process.trim()))
}

/// A datagram with its header, of IPv4.
pub fn datagram(source: &str, target: &str, port: u16) -> Vec<u8> {
    let text = b"in";
    let mut header = vec![0x45, 0];
    header.extend((28 + text.len() as u16).to_be_bytes());
    header.extend([0, 1, 0, 0, 64, 17, 0, 0]);
    for address in [source, target] {
        header.extend(address.parse::<Ipv4Addr>().unwrap().octets());
    }
    let sum: u32 = header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header.extend([4000_u16.to_be_bytes(), port.to_be_bytes(), (8 + text.len() as u16).to_be_bytes(), [0, 0]].concat());
    header.extend(text);
    header
}

/// The same as a frame of the pod for the bridge of its node.
pub fn frame(pod: &Path, machine: &Machine, source: &str, target: &str, port: u16) -> Vec<u8> {
    let (bridge, own) = (hardware(&machine.network(), "knarr0"), hardware(pod, "eth0"));
    [&bridge[..], &own, &[8, 0], &datagram(source, target, port)].concat()
}

/// The same in the wrapping of the tunnel, for the node with a range of pods.
pub fn wrapped(range: &str, source: &str, target: &str, port: u16) -> Vec<u8> {
    let network: Ipv4Addr = range.split('/').next().unwrap().parse().unwrap();
    let header = [8, 0, 0, 0, 0, 0, 1, 0];
    [&header[..], &[0x0a, 0x6b], &network.octets(), &[2; 6], &[8, 0], &datagram(source, target, port)].concat()
}

/// Puts a frame on the pod's device as it is.
pub fn send_frame(network: &Path, frame: &[u8]) {
    let hex: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
    let script = "import socket,sys;s=socket.socket(socket.AF_PACKET,socket.SOCK_RAW);s.bind(('eth0',0));s.send(bytes.fromhex(sys.argv[1]))";
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", network.display())).args(["python3", "-c", script, &hex]);
    assert!(command.status().unwrap().success());
}

fn hardware(network: &Path, device: &str) -> Vec<u8> {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", network.display())).args(["ip", "-o", "link", "show", device]);
    let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
    let text = text.split("link/ether ").nth(1).unwrap().split_whitespace().next().unwrap();
    text.split(':').map(|part| u8::from_str_radix(part, 16).unwrap()).collect()
}
