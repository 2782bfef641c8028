//! What a machine takes from outside, and what its guest sends there.

use super::Machine;
use super::happening::What;
use crate::devices::Sent;
use crate::devices::console::{Console, Size};
use crate::devices::net::Net;
use crate::devices::rng::Rng;
use crate::devices::vsock::{Header, Vsock};
use crate::journal::Input;

impl Machine {
    /// Takes what comes from outside. What there is no room for is lost, and so is what it has no device for.
    pub fn take_in(&mut self, input: &Input) {
        let now = self.moment().time;
        let devices = &mut self.devices;
        match input {
            Input::Typed(bytes) => self.type_bytes(bytes),
            Input::Frame(bytes) => devices.net.iter_mut().for_each(|net| net.receive(bytes, now)),
            Input::Random(bytes) => devices.rng.iter_mut().for_each(|rng| rng.give(bytes, now)),
            Input::Resized(size) => devices.console.iter_mut().for_each(|console| console.resize(*size)),
            Input::Packet(bytes) => devices.vsock.iter_mut().for_each(|vsock| vsock.receive(bytes, now)),
            Input::Severed => devices.vsock.iter_mut().for_each(|vsock| vsock.sever(now)),
        }
    }

    /// How many bytes its console takes now: the one of virtio if there is one, else COM1. None while the guest does not listen there.
    #[must_use]
    pub fn room(&self) -> usize {
        self.devices.room()
    }

    /// Types bytes there; what there is no room for is lost.
    pub fn type_bytes(&mut self, bytes: &[u8]) {
        let retired = self.cpu().retired();
        self.devices.clock.retire_to(retired);
        self.devices.type_bytes(bytes);
    }

    /// Whether it has a network card.
    #[must_use]
    pub fn has_network(&self) -> bool {
        self.devices.net.is_some()
    }

    /// Whether the guest takes frames.
    #[must_use]
    pub fn is_network_up(&self) -> bool {
        self.devices.net.as_ref().is_some_and(Net::is_up)
    }

    /// How many frames its network card takes now.
    #[must_use]
    pub fn frame_room(&self) -> usize {
        self.devices.net.as_ref().map_or(0, Net::room)
    }

    /// How many random bytes the guest waits for.
    #[must_use]
    pub fn random_wanted(&self) -> usize {
        self.devices.rng.as_ref().map_or(0, Rng::wanted)
    }

    /// The size that the terminal of its console of virtio has, if it has one.
    #[must_use]
    pub fn console_size(&self) -> Option<Size> {
        self.devices.console.as_ref().map(Console::size)
    }

    /// Whether it has a vsock.
    #[must_use]
    pub fn has_vsock(&self) -> bool {
        self.devices.vsock.is_some()
    }

    /// Whether the guest takes packets of its vsock.
    #[must_use]
    pub fn is_vsock_up(&self) -> bool {
        self.devices.vsock.as_ref().is_some_and(Vsock::is_up)
    }

    /// How many packets its vsock takes now.
    #[must_use]
    pub fn packet_room(&self) -> usize {
        self.devices.vsock.as_ref().map_or(0, Vsock::room)
    }

    /// Keeps what the guest sends from now on, until it is taken.
    pub fn connect(&mut self) {
        self.sent = Some(Sent::default());
    }

    /// The frames that the guest has sent since this was called last, and the packets.
    pub fn take_sent(&mut self) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let Sent { frames, packets } = self.sent.as_mut().map(std::mem::take).unwrap_or_default();
        (frames, packets)
    }

    /// Takes out what the guest sends.
    pub(super) fn take_out(&mut self, sent: Sent) {
        sent.frames.iter().for_each(|frame| self.happens(What::Sent(frame.len())));
        let headers = sent.packets.iter().filter_map(|packet| Header::of(packet));
        headers.for_each(|header| self.happens(What::Packet(header)));
        if let Some(kept) = &mut self.sent {
            kept.frames.extend(sent.frames);
            kept.packets.extend(sent.packets);
        }
    }
}
