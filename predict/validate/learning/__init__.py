"""What published runs teach: widths of intervals and constants, each judged on sources left out."""
