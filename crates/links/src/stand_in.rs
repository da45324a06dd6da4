//! A port whose connections become links, with no server behind it: what `net` and the command `hello` do for
//! them, in short. For tests of what stands on links.
//!
//! Always true: behind [`Port`]'s drop nothing is accepted.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bson::{RawBsonRef, RawDocument, RawDocumentBuf, doc, rawdoc};
use dispatch::{AcceptedLink, ConnectionInfo, HandedOver, LinkAcceptor};
use os::{JoinHandle, Os};
use wire::{Message, MsgFlags};

use crate::hello::MAX_ANSWER;

/// How long a hello may take.
const HELLO_TIMEOUT: Duration = Duration::from_secs(2);

/// A listening socket.
pub struct Port {
    number: u16,
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle>,
}

impl Port {
    /// Lets links in that come to a listening socket.
    ///
    /// # Errors
    /// There is no thread.
    pub fn open(
        os: &Os,
        listener: TcpListener,
        acceptor: Arc<dyn LinkAcceptor>,
    ) -> io::Result<Self> {
        let number = listener.local_addr()?.port();
        let stops = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&stops);
        let accept = Box::new(move || {
            for stream in listener.incoming() {
                if ends.load(Ordering::SeqCst) {
                    return;
                }
                // One that breaks is tried again by who opened it.
                let _broken = stream.and_then(|stream| serve(stream, &*acceptor));
            }
        });
        let thread = os.spawner.spawn("links-port", accept)?;
        Ok(Self { number, stops, thread: Some(thread) })
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::SeqCst);
        let _wakes_it = TcpStream::connect(("127.0.0.1", self.number));
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Port").field(&self.number).finish()
    }
}

/// Reads a hello, and answers it as the command does.
fn serve(mut stream: TcpStream, acceptor: &dyn LinkAcceptor) -> io::Result<()> {
    stream.set_read_timeout(Some(HELLO_TIMEOUT))?;
    let message = read_message(&mut stream)?;
    let Ok((_, Message::Msg(message))) = wire::decode(&message) else { return Ok(()) };
    let Ok(Some(RawBsonRef::Document(link))) = message.body.get("fernLink") else { return Ok(()) };
    let peer = ConnectionInfo { remote: stream.peer_addr()?.to_string(), local: String::new() };
    match acceptor.accept(link, &peer) {
        Ok(accepted) => {
            let AcceptedLink { answer, frames, .. } = &accepted;
            let reply = rawdoc! { "fernLink": answer.clone(), "fernFrames": *frames, "ok": 1.0 };
            send_message(&mut stream, &reply)?;
            stream.set_nonblocking(true)?;
            let input = Box::new(stream.try_clone()?);
            (accepted.take)(HandedOver { socket: stream, input });
        }
        Err(error) => {
            let mut reply = error.extra().cloned().unwrap_or_default();
            reply.extend(doc! { "ok": 0.0, "errmsg": error.message() });
            let reply = RawDocumentBuf::try_from(&reply).map_err(io::Error::other)?;
            send_message(&mut stream, &reply)?;
        }
    }
    Ok(())
}

/// Reads one message.
///
/// # Errors
/// There is none, or a longer one than a hello.
pub fn read_message(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let bytes = u32::from_le_bytes(length) as usize;
    if !(4..=MAX_ANSWER).contains(&bytes) {
        return Err(io::Error::other("no hello is so long"));
    }
    let mut message = vec![0; bytes];
    let (head, rest) = message.split_at_mut(4);
    head.copy_from_slice(&length);
    stream.read_exact(rest)?;
    Ok(message)
}

/// Sends one.
///
/// # Errors
/// The connection is broken.
pub fn send_message(stream: &mut TcpStream, body: &RawDocument) -> io::Result<()> {
    let mut message = Vec::new();
    wire::encode_msg(&mut message, 1, 1, MsgFlags::NONE, body);
    stream.write_all(&message)
}
