"""Extensions that come with Shiftboss. They use the same door as anybody else's: `shiftboss.extension`."""
