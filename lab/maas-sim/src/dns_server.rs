//! The DNS server of MAAS, over UDP and TCP: A and AAAA of DNS resources and machines, CNAME and TXT records, SOA and
//! NS of the domains. A few hundred hand-written lines are less than a server library for so little.

use std::{io, net::IpAddr, net::SocketAddr, sync::Arc};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, UdpSocket},
};

use crate::{
    Simulator,
    http::render::machine::addresses,
    model::{Model, db::Domain},
};

const A: u16 = 1;
const NS: u16 = 2;
const CNAME: u16 = 5;
const SOA: u16 = 6;
const MX: u16 = 15;
const TXT: u16 = 16;
const AAAA: u16 = 28;
const SRV: u16 = 33;
const ANY: u16 = 255;
const IN: u16 = 1;

const NO_ERROR: u8 = 0;
const FORMAT_ERROR: u8 = 1;
const NAME_ERROR: u8 = 3;
const NOT_IMPLEMENTED: u8 = 4;
const REFUSED: u8 = 5;

const DEFAULT_TTL: u32 = 30;
/// The UDP answer size that every client supports.
const UDP_LIMIT: usize = 512;
const HEADER: usize = 12;
/// The maximum length of a CNAME chain.
const MAX_CHAIN: usize = 8;

struct Question {
    name: String,
    kind: u16,
    /// The offset of the question's end in the message.
    end: usize,
}

/// A record of an answer.
struct Answer {
    name: String,
    kind: u16,
    ttl: u32,
    data: Vec<u8>,
}

/// Serves DNS until it is dropped. Returns the address that it listens on, for both UDP and TCP.
pub async fn serve(simulator: Simulator, address: SocketAddr) -> io::Result<(SocketAddr, tokio::task::JoinHandle<()>)> {
    let tcp = TcpListener::bind(address).await?;
    let bound = tcp.local_addr()?;
    let udp = Arc::new(UdpSocket::bind(bound).await?);
    let task = tokio::spawn(async move {
        let over_udp = serve_udp(simulator.clone(), udp);
        let over_tcp = serve_tcp(simulator, tcp);
        tokio::join!(over_udp, over_tcp);
    });
    Ok((bound, task))
}

async fn serve_udp(simulator: Simulator, socket: Arc<UdpSocket>) {
    let mut buffer = vec![0; 4096];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut buffer).await else { continue };
        let Some(query) = buffer.get(..length) else { continue };
        let reply = simulator.control().with_model(|model| respond(model, query, Some(UDP_LIMIT)));
        if let Some(reply) = reply {
            // The client may be gone.
            let _ = socket.send_to(&reply, from).await;
        }
    }
}

async fn serve_tcp(simulator: Simulator, listener: TcpListener) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let simulator = simulator.clone();
        tokio::spawn(async move {
            // The client may be gone.
            let _ = serve_stream(simulator, stream).await;
        });
    }
}

async fn serve_stream(simulator: Simulator, mut stream: TcpStream) -> io::Result<()> {
    loop {
        let length = usize::from(stream.read_u16().await?);
        let mut query = vec![0; length];
        stream.read_exact(&mut query).await?;
        let Some(reply) = simulator.control().with_model(|model| respond(model, &query, None)) else { return Ok(()) };
        let length = u16::try_from(reply.len()).unwrap_or(u16::MAX);
        stream.write_u16(length).await?;
        stream.write_all(&reply).await?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let pair = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([pair[0], pair[1]]))
}

/// The single question of a message. Compressed names are not supported, because no client sends them in questions.
fn question(query: &[u8]) -> Option<Question> {
    let mut at = HEADER;
    let mut labels: Vec<String> = Vec::new();
    loop {
        let length = usize::from(*query.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        if length > 63 {
            return None;
        }
        labels.push(String::from_utf8_lossy(query.get(at..at + length)?).to_ascii_lowercase());
        at += length;
    }
    let kind = u16_at(query, at)?;
    u16_at(query, at + 2)?;
    Some(Question { name: labels.join("."), kind, end: at + 4 })
}

/// The answer to a message; `None` if it is not a query.
pub fn respond(model: &Model, query: &[u8], limit: Option<usize>) -> Option<Vec<u8>> {
    if query.len() < HEADER || query.get(2)? & 0x80 != 0 {
        return None;
    }
    let opcode = (query.get(2)? >> 3) & 0x0F;
    if opcode != 0 {
        return Some(message(query, None, NOT_IMPLEMENTED, false, &[], &[]));
    }
    let Some(asked) = question(query).filter(|_| u16_at(query, 4) == Some(1)) else {
        return Some(message(query, None, FORMAT_ERROR, false, &[], &[]));
    };
    let Some(domain) = domain_of(model, &asked.name) else {
        return Some(message(query, Some(&asked), REFUSED, false, &[], &[]));
    };
    let (answers, exists) = look_up(model, &asked.name, asked.kind);
    let authority = if answers.is_empty() { vec![soa(model, domain)] } else { Vec::new() };
    let code = if exists { NO_ERROR } else { NAME_ERROR };
    let full = message(query, Some(&asked), code, false, &answers, &authority);
    if limit.is_some_and(|limit| full.len() > limit) {
        return Some(message(query, Some(&asked), code, true, &[], &[]));
    }
    Some(full)
}

/// The most specific domain that contains a name.
fn domain_of<'a>(model: &'a Model, name: &str) -> Option<&'a Domain> {
    model
        .db
        .domains
        .values()
        .filter(|domain| {
            let zone = domain.name.to_ascii_lowercase();
            name == zone || name.strip_suffix(&zone).is_some_and(|rest| rest.ends_with('.'))
        })
        .max_by_key(|domain| domain.name.len())
}

/// Records of a name, with CNAMEs followed, and whether the name exists at all.
fn look_up(model: &Model, name: &str, kind: u16) -> (Vec<Answer>, bool) {
    let mut answers = Vec::new();
    let mut current = name.to_owned();
    for _ in 0..MAX_CHAIN {
        let (mut found, exists, alias) = records(model, &current, kind);
        answers.append(&mut found);
        match alias {
            Some((record, target)) if kind != CNAME => {
                answers.push(record);
                current = target;
            }
            _ => return (answers, exists || current != name),
        }
    }
    (answers, true)
}

type Alias = Option<(Answer, String)>;

fn records(model: &Model, name: &str, kind: u16) -> (Vec<Answer>, bool, Alias) {
    let mut answers = Vec::new();
    let mut exists = false;
    let mut alias = None;
    if let Some(domain) = model.db.domains.values().find(|domain| domain.name.eq_ignore_ascii_case(name)) {
        exists = true;
        if kind == SOA || kind == ANY {
            answers.push(soa(model, domain));
        }
        if kind == NS || kind == ANY {
            let data = encode_name(&format!("maas.{}", domain.name));
            answers.push(Answer { name: name.to_owned(), kind: NS, ttl: DEFAULT_TTL, data });
        }
    }
    let mut add_ip = |ip: IpAddr, ttl: u32| {
        let (of, data) = match ip {
            IpAddr::V4(ip) => (A, ip.octets().to_vec()),
            IpAddr::V6(ip) => (AAAA, ip.octets().to_vec()),
        };
        if kind == of || kind == ANY {
            answers.push(Answer { name: name.to_owned(), kind: of, ttl, data });
        }
    };
    for dns in model.db.dns.values().filter(|dns| model.dns_fqdn(dns).eq_ignore_ascii_case(name)) {
        exists = true;
        let zone_ttl = model.db.domains.get(&dns.domain).and_then(|domain| domain.ttl);
        let ttl = dns.address_ttl.or(zone_ttl).and_then(|ttl| u32::try_from(ttl).ok()).unwrap_or(DEFAULT_TTL);
        for ip in dns.addresses.iter().filter_map(|id| model.db.addresses.get(id)).filter_map(|row| row.ip) {
            add_ip(ip, ttl);
        }
    }
    for machine in model.db.machines.values() {
        let zone = model.db.domains.get(&machine.domain).map_or("", |domain| domain.name.as_str());
        if format!("{}.{zone}", machine.hostname).eq_ignore_ascii_case(name) {
            let ips = addresses(model, machine);
            exists |= !ips.is_empty();
            for ip in ips.iter().filter_map(|ip| ip.parse().ok()) {
                add_ip(ip, DEFAULT_TTL);
            }
        }
    }
    for dns in model.db.dns.values().filter(|dns| model.dns_fqdn(dns).eq_ignore_ascii_case(name)) {
        for record in &dns.records {
            let ttl = record.ttl.and_then(|ttl| u32::try_from(ttl).ok()).unwrap_or(DEFAULT_TTL);
            let Some((of, data)) = encode_record(&record.rrtype, &record.rrdata) else { continue };
            let answer = Answer { name: name.to_owned(), kind: of, ttl, data };
            if of == CNAME && kind != CNAME && kind != ANY {
                alias = Some((answer, record.rrdata.trim_end_matches('.').to_ascii_lowercase()));
            } else if kind == of || kind == ANY {
                answers.push(answer);
            }
        }
    }
    (answers, exists, alias)
}

fn soa(model: &Model, domain: &Domain) -> Answer {
    let mut data = encode_name(&format!("maas.{}", domain.name));
    data.extend(encode_name(&format!("nobody.{}", domain.name)));
    let serial = u32::try_from(model.now.as_second()).unwrap_or(1);
    for number in [serial, 600, 1800, 604_800, DEFAULT_TTL] {
        data.extend(number.to_be_bytes());
    }
    Answer { name: domain.name.clone(), kind: SOA, ttl: DEFAULT_TTL, data }
}

fn encode_name(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for label in name.trim_end_matches('.').split('.').filter(|label| !label.is_empty()) {
        let bytes = label.as_bytes();
        let short = bytes.get(..bytes.len().min(63)).unwrap_or_default();
        out.push(u8::try_from(short.len()).unwrap_or(63));
        out.extend_from_slice(short);
    }
    out.push(0);
    out
}

fn encode_record(kind: &str, data: &str) -> Option<(u16, Vec<u8>)> {
    Some(match kind {
        "CNAME" => (CNAME, encode_name(data)),
        "NS" => (NS, encode_name(data)),
        "TXT" => {
            let mut out = Vec::new();
            for chunk in data.trim_matches('"').as_bytes().chunks(255) {
                out.push(u8::try_from(chunk.len()).unwrap_or(255));
                out.extend_from_slice(chunk);
            }
            (TXT, out)
        }
        "MX" => {
            let (preference, host) = data.split_once(' ')?;
            let mut out = preference.parse::<u16>().ok()?.to_be_bytes().to_vec();
            out.extend(encode_name(host));
            (MX, out)
        }
        "SRV" => {
            let mut words = data.split_whitespace();
            let mut out = Vec::new();
            for _ in 0..3 {
                out.extend(words.next()?.parse::<u16>().ok()?.to_be_bytes());
            }
            out.extend(encode_name(words.next()?));
            (SRV, out)
        }
        _ => return None,
    })
}

fn message(
    query: &[u8],
    asked: Option<&Question>,
    code: u8,
    truncated: bool,
    answers: &[Answer],
    authority: &[Answer],
) -> Vec<u8> {
    let mut out = query.get(..2).unwrap_or(&[0, 0]).to_vec();
    let recursion_desired = query.get(2).copied().unwrap_or(0) & 0x01;
    let flags = 0x84 | recursion_desired | if truncated { 0x02 } else { 0 };
    out.push(flags);
    out.push(code);
    let count = |length: usize| u16::try_from(length).unwrap_or(0).to_be_bytes();
    out.extend(count(usize::from(asked.is_some())));
    out.extend(count(answers.len()));
    out.extend(count(authority.len()));
    out.extend(count(0));
    if let Some(asked) = asked {
        out.extend_from_slice(query.get(HEADER..asked.end).unwrap_or_default());
    }
    for answer in answers.iter().chain(authority) {
        out.extend(encode_name(&answer.name));
        out.extend(answer.kind.to_be_bytes());
        out.extend(IN.to_be_bytes());
        out.extend(answer.ttl.to_be_bytes());
        out.extend(u16::try_from(answer.data.len()).unwrap_or(0).to_be_bytes());
        out.extend_from_slice(&answer.data);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, model::statement::Statement};

    fn ask(model: &Model, name: &str, kind: u16) -> Vec<u8> {
        let mut query = vec![0x12, 0x34, 0x01, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        query.extend(encode_name(name));
        query.extend(kind.to_be_bytes());
        query.extend(IN.to_be_bytes());
        respond(model, &query, Some(UDP_LIMIT)).unwrap()
    }

    fn code_and_answers(reply: &[u8]) -> (u8, u16) {
        (reply[3] & 0x0F, u16_at(reply, 6).unwrap())
    }

    fn model() -> Model {
        let mut model = Model::new(&Config::driven("a:b:c".parse().unwrap()));
        let statements: Vec<Statement> = serde_json::from_str(
            r#"[{"subnet": {"cidr": "10.0.0.0/24", "dhcp": true}}, {"domain": {"name": "k8s.example"}},
                {"dns": {"fqdn": "c1.k8s.example", "ip_addresses": ["10.0.0.60", "10.0.0.61"], "ttl": 10}},
                {"dns": {"fqdn": "cn.k8s.example", "records": [{"rrtype": "CNAME", "rrdata": "c1.k8s.example"}]}},
                {"machine": {"hostname": "bm01", "status": "Deployed", "owner": "admin"}}]"#,
        )
        .unwrap();
        for statement in &statements {
            model.arrange(statement).unwrap();
        }
        model
    }

    #[test]
    fn names_of_resources_and_machines_resolve() {
        let model = model();
        assert_eq!(code_and_answers(&ask(&model, "C1.K8S.example", A)), (NO_ERROR, 2));
        assert_eq!(code_and_answers(&ask(&model, "bm01.maas", A)), (NO_ERROR, 1));
        assert_eq!(code_and_answers(&ask(&model, "cn.k8s.example", A)), (NO_ERROR, 3));
        assert_eq!(code_and_answers(&ask(&model, "k8s.example", SOA)), (NO_ERROR, 1));
    }

    #[test]
    fn what_does_not_exist_is_told_apart_from_what_has_no_such_record_and_from_foreign_names() {
        let model = model();
        assert_eq!(code_and_answers(&ask(&model, "nosuch.k8s.example", A)), (NAME_ERROR, 0));
        assert_eq!(code_and_answers(&ask(&model, "c1.k8s.example", AAAA)), (NO_ERROR, 0));
        assert_eq!(code_and_answers(&ask(&model, "example.org", A)), (REFUSED, 0));
    }

    #[test]
    fn garbage_is_no_query() {
        let model = model();
        assert!(respond(&model, b"x", None).is_none());
        let reply = respond(&model, &[0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 63], None).unwrap();
        assert_eq!(code_and_answers(&reply).0, FORMAT_ERROR);
    }
}
