//! Sets up the terminal for the screen, and restores it however the program ends.

use std::io::{self, Stdout, stdout};
use std::mem::ManuallyDrop;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::style::force_color_output;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::layout::Size;
use rustix::process::{Signal, kill_current_process_group};

use super::app::App;
use super::draw::draw;

/// Whether the terminal is set up for the screen.
static ACTIVE: AtomicBool = AtomicBool::new(false);

/// The terminal, set up for the screen.
pub struct Screen {
    /// Never dropped: after a hang-up, ratatui's drop would write an error to the terminal and panic.
    terminal: ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>,
}

impl Screen {
    /// Sets up the terminal. A panic in any thread restores it before its message is printed.
    pub fn take() -> Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let print_panic = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                restore();
                print_panic(panic);
            }));
        });
        // The colours of the terminal are known already, including NO_COLOR.
        force_color_output(true);
        let terminal = ManuallyDrop::new(Terminal::new(CrosstermBackend::new(stdout()))?);
        let screen = Self { terminal };
        enter().context("the terminal cannot be set up for a screen; use isotherm record instead")?;
        Ok(screen)
    }

    /// The current size of the terminal.
    pub fn size(&self) -> io::Result<Size> {
        self.terminal.size()
    }

    /// Whether the terminal is still set up. A panic restores it.
    pub fn is_active(&self) -> bool {
        ACTIVE.load(Ordering::Acquire)
    }

    /// Draws the state. Does nothing after the terminal has been restored.
    ///
    /// The guard that `state` returns is held while cells are drawn, but not while they are written to the
    /// terminal, which may be slow.
    pub fn draw<G: std::ops::Deref<Target = App>>(&mut self, state: impl FnOnce(Size) -> G) -> io::Result<()> {
        if !self.is_active() {
            return Ok(());
        }
        self.terminal.draw(|frame| {
            let app = state(frame.area().as_size());
            draw(&app, frame.buffer_mut());
        })?;
        Ok(())
    }

    /// Makes the next drawing write every cell.
    pub fn invalidate(&mut self) -> io::Result<()> {
        // `clear` would query the cursor's position, and the thread that reads keys would get the answer.
        let size = self.terminal.size()?;
        self.terminal.resize(size.into())
    }

    /// Restores the terminal and stops the whole job, as Ctrl-Z does. Returns when the job continues.
    pub fn suspend(&mut self) -> io::Result<()> {
        restore();
        kill_current_process_group(Signal::TSTP)?;
        enter()?;
        self.invalidate()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    ACTIVE.store(true, Ordering::Release);
    execute!(stdout(), EnterAlternateScreen, Hide)
}

fn restore() {
    if ACTIVE.swap(false, Ordering::AcqRel) {
        // These fail after a hang-up, which does not matter.
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}
