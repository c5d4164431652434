"""From async code: commands at once, output as it comes, and a cancellation that ends the command."""

import asyncio
import tempfile

from coderig import AsyncSandbox, LocalSandbox


async def main(directory: str) -> None:
    async with AsyncSandbox(LocalSandbox(directory)) as box:
        results = await asyncio.gather(*(box.exec(f"echo job {number}") for number in range(3)))
        print([result.stdout.strip() for result in results])

        async for stream, data in box.stream("echo building; echo warning >&2"):
            print(stream, data.decode().strip())

        try:
            async with asyncio.timeout(0.5):
                await box.exec("sleep 5; touch too-late")
        except TimeoutError:
            print("ended; files:", await box.list_dir())


with tempfile.TemporaryDirectory() as directory:
    asyncio.run(main(directory))
